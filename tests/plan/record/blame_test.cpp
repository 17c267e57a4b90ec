// Where the time of a run went: every moment of every actor is told of once, and a delay counts where it was.
#include "plan/record/blame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "plan/record/latency.h"
#include "support/simulated_recording.h"
#include "support/soak.h"
#include "support/timed_plan.h"

namespace sluice::plan {
namespace {

constexpr double kMs = 1e6;
constexpr int kSteps = 20;

struct Costs {
  double prepare_ns = kMs, net_ns = 2 * kMs, other_ns = 0;
  int quota = 2;
  bool one_stream = false;
  int cores = 0;
};

// feed -> prepare -> net -> sink, and 'other' beside prepare on its stream.
Plan staged(const Costs& costs) {
  PlanBuilder b("staged");
  const int host = b.stream("cpu:0", StreamKind::kHost), one = b.stream("cpu:0", StreamKind::kCompute, 0),
            two = b.stream("cpu:0", StreamKind::kCompute, 1);
  const int feed = b.feed("feed", host), prepare = b.actor("prepare", one), other = b.actor("other", one);
  const int net = b.actor("net", costs.one_stream ? one : two), sink = b.sink("sink", host);
  const int x = b.reg("x", feed, {prepare, other}, {.quota = kSteps, .bytes = 64});
  const int images = b.reg("images", prepare, {net}, {.quota = costs.quota, .bytes = 64});
  const int z = b.reg("z", other, {sink}, {.quota = kSteps, .bytes = 64});
  const int y = b.reg("y", net, {sink}, {.quota = kSteps, .bytes = 64});
  b.run(prepare, "shift", {b.of_reg(x, {16})}, {b.of_reg(images, {16})}, costs.prepare_ns);
  b.run(other, "twist", {b.of_reg(x, {16})}, {b.of_reg(z, {16})}, costs.other_ns);
  b.run(net, "net", {b.of_reg(images, {16})}, {b.of_reg(y, {16})}, costs.net_ns);
  Plan plan = b.build();
  plan.kernels[0].module = "input", plan.kernels[2].module = "model";
  plan.kernels[0].role = Role::kData;
  plan.kernels[2].source = {"net.py", 7};
  return plan;
}

struct Blamed {
  Plan plan;
  Timeline timeline;
  std::vector<BlameRow> rows;
  const BlameRow& of(const std::string& name) const { return *std::ranges::find(rows, name, &BlameRow::name); }
  int64_t ns(const std::string& name, Spent spent) const { return of(name).ns[static_cast<int>(spent)]; }
};

Blamed blamed(const Costs& costs) {
  const Recording recording = simulated_recording(staged(costs), {.steps = kSteps, .cores = costs.cores});
  Blamed b{recording.plan, timeline_of(recording), {}};
  b.rows = blame_of(b.plan, b.timeline, BlameBy::kActor);
  return b;
}

TEST(Blame, ADelayCountsWhereItWasAndWhereItWasWaitedFor) {
  const Costs usual{.prepare_ns = 3 * kMs};
  Costs slow = usual;
  slow.prepare_ns += 10 * kMs;
  const Blamed before = blamed(usual), after = blamed(slow);
  const auto moved = [&](const char* name, Spent spent) { return after.ns(name, spent) - before.ns(name, spent); };
  const int64_t injected = kSteps * static_cast<int64_t>(10 * kMs);
  EXPECT_EQ(moved("prepare", Spent::kRun), injected);
  EXPECT_EQ(moved("net", Spent::kRun), 0);
  EXPECT_GE(moved("net", Spent::kInput), injected * 95 / 100);
  for (const Spent spent :
       {Spent::kCredit, Spent::kStream, Spent::kCores, Spent::kDevice, Spent::kHost, Spent::kLost}) {
    EXPECT_EQ(moved("net", spent), 0) << spent_name(spent);
    EXPECT_EQ(moved("prepare", spent), 0) << spent_name(spent);
  }
  ASSERT_FALSE(after.of("net").waits.empty());
  EXPECT_EQ(wait_str(after.plan, after.of("net").waits[0]), "'images' of 'prepare'");
  // Whom it waited for in the end was at work.
  const std::vector<BlameRoot> roots = roots_of(after.plan, after.timeline, last_actor(after.plan, after.rows));
  ASSERT_FALSE(roots.empty());
  EXPECT_EQ(root_str(after.plan, roots[0]), "'prepare' ran");
  const int64_t all = std::accumulate(roots.begin(), roots.end(), int64_t{0},
                                      [](int64_t sum, const BlameRoot& root) { return sum + root.ns; });
  EXPECT_EQ(all, after.ns("net", Spent::kInput) + after.ns("net", Spent::kCredit));
  EXPECT_GE(roots[0].ns, all * 95 / 100);
}

TEST(Blame, ASlowConsumerShowsAsTheCreditOfItsProducer) {
  const Blamed before = blamed({}), after = blamed({.net_ns = 12 * kMs});
  const int64_t injected = kSteps * static_cast<int64_t>(10 * kMs);
  EXPECT_EQ(after.ns("net", Spent::kRun) - before.ns("net", Spent::kRun), injected);
  // The producer is ahead by the quota, so the last firings of the consumer do not hold it up.
  EXPECT_GE(after.ns("prepare", Spent::kCredit) - before.ns("prepare", Spent::kCredit), injected * 80 / 100);
  EXPECT_EQ(wait_str(after.plan, after.of("prepare").waits[0]), "a slot of 'images'");
}

TEST(Blame, AnActorOfTheSameStreamShowsAsTheStream) {
  const Blamed before = blamed({.other_ns = kMs}), after = blamed({.other_ns = 11 * kMs});
  EXPECT_GE(after.ns("prepare", Spent::kStream) - before.ns("prepare", Spent::kStream),
            kSteps * static_cast<int64_t>(10 * kMs) * 80 / 100);
  EXPECT_EQ(after.ns("prepare", Spent::kHost), before.ns("prepare", Spent::kHost));
  EXPECT_EQ(wait_str(after.plan, after.of("prepare").waits[0]), "stream, in 'other'");
}

TEST(Blame, CoresThatOthersHoldAreWaitedForAsCores) {
  const Blamed free = blamed({.cores = 2}), shared = blamed({.cores = 1});
  EXPECT_EQ(free.ns("net", Spent::kCores) + free.ns("prepare", Spent::kCores), 0);
  EXPECT_GE(shared.ns("net", Spent::kCores) + shared.ns("prepare", Spent::kCores),
            static_cast<int64_t>(kSteps / 2 * kMs));
}

TEST(Blame, RollsUpByModuleLineAndRole) {
  const Blamed b = blamed({});
  const auto row = [&](BlameBy by, const std::string& name) {
    const std::vector<BlameRow> rows = blame_of(b.plan, b.timeline, by);
    const auto it = std::ranges::find(rows, name, &BlameRow::name);
    EXPECT_NE(it, rows.end()) << name;
    return it == rows.end() ? 0 : it->ns[static_cast<int>(Spent::kRun)];
  };
  EXPECT_EQ(row(BlameBy::kModule, "input"), static_cast<int64_t>(kSteps * kMs));
  EXPECT_EQ(row(BlameBy::kModule, "model"), static_cast<int64_t>(kSteps * 2 * kMs));
  EXPECT_EQ(row(BlameBy::kLine, "net.py:7"), static_cast<int64_t>(kSteps * 2 * kMs));
  EXPECT_EQ(row(BlameBy::kRole, "data"), static_cast<int64_t>(kSteps * kMs));
  EXPECT_EQ(row(BlameBy::kStream, "cpu:0/compute1"), static_cast<int64_t>(kSteps * 2 * kMs));
}

TEST(Blame, EventsThatAreMissingAreSaidSo) {
  Recording recording = simulated_recording(staged({}), {.steps = kSteps});
  const int net = 3;
  std::erase_if(recording.trace.events,
                [&](const TraceEvent& e) { return e.actor == net && e.step > 3 && e.step < 9; });
  const Timeline timeline = timeline_of(recording);
  const std::vector<BlameRow> rows = blame_of(recording.plan, timeline, BlameBy::kActor);
  EXPECT_GE(rows[net].ns[static_cast<int>(Spent::kLost)], static_cast<int64_t>(5 * 2 * kMs));
  EXPECT_EQ(rows[net].total_ns, timeline.end_ns - timeline.begin_ns);
}

TEST(Latency, OfEachPathFromWhereAStepBeginsToWhereItEnds) {
  const Recording recording = simulated_recording(staged({.quota = 1}), {.steps = kSteps, .in_flight = 1});
  const std::vector<PathLatency> paths = latencies_of(recording.plan, timeline_of(recording));
  ASSERT_EQ(paths.size(), 1u);
  EXPECT_EQ(recording.plan.actors[paths[0].from].name, "feed");
  EXPECT_EQ(recording.plan.actors[paths[0].to].name, "sink");
  EXPECT_EQ(paths[0].steps, static_cast<size_t>(kSteps));
  for (const int64_t ns : {paths[0].min_ns, paths[0].p50_ns, paths[0].p99_ns, paths[0].max_ns})
    EXPECT_EQ(ns, static_cast<int64_t>(3 * kMs));
  EXPECT_DOUBLE_EQ(paths[0].mean_ns, 3 * kMs);
}

// Random plans, with rates, feedback and shared cores: the segments of an actor follow each other without a gap, its
// kernels ran as long as they did, and no rolling up loses a nanosecond.
TEST(SoakBlame, SumsToAllOfTheTime) {
  const int64_t total = test::repetitions(200, 5000);
  int64_t segments = 0;
  for (int64_t seed = 0; seed < total; ++seed) {
    Plan plan = random_timed_plan(static_cast<uint64_t>(seed));
    as_control(plan);
    for (Kernel& kernel : plan.kernels) {
      kernel.cost_ns *= 1000;
      if (seed % 2 != 0) kernel.op = "work";
    }
    const Recording recording = simulated_recording(plan, {.steps = 12, .cores = static_cast<int>(seed % 3)});
    if (recording.trace.events.empty()) continue;
    const Timeline timeline = timeline_of(recording);
    int64_t ran = 0;
    for (const TraceEvent& e : recording.trace.events) ran += e.kernel >= 0 ? e.end_ns - e.begin_ns : 0;
    for (const std::vector<Segment>& actor : timeline.actors) {
      int64_t at = timeline.begin_ns;
      for (const Segment& s : actor) {
        ASSERT_EQ(s.begin_ns, at) << "seed " << seed;
        ASSERT_GT(s.end_ns, s.begin_ns);
        ran -= s.spent == Spent::kRun ? s.end_ns - s.begin_ns : 0;
        at = s.end_ns;
        ++segments;
      }
      ASSERT_EQ(at, timeline.end_ns) << "seed " << seed;
    }
    EXPECT_EQ(ran, 0) << "seed " << seed;
    const int64_t all = (timeline.end_ns - timeline.begin_ns) * static_cast<int64_t>(plan.actors.size());
    for (const BlameBy by : {BlameBy::kActor, BlameBy::kStream, BlameBy::kModule, BlameBy::kLine, BlameBy::kRole}) {
      int64_t sum = 0;
      for (const BlameRow& row : blame_of(plan, timeline, by)) {
        sum += row.total_ns;
        EXPECT_EQ(std::accumulate(row.ns.begin(), row.ns.end(), int64_t{0}), row.total_ns);
      }
      EXPECT_EQ(sum, all) << "seed " << seed;
    }
  }
  test::report_count("blame: segments of actors", segments, "segments");
}

}  // namespace
}  // namespace sluice::plan
