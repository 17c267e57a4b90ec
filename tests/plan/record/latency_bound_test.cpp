// The certificate of a plan's latency (C-17): no step takes longer than the bound that follows from quotas and from
// what firings took, whatever each firing takes.
#include "plan/time/latency_bound.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "plan/record/latency.h"
#include "support/simulated_recording.h"
#include "support/soak.h"
#include "support/timed_plan.h"
#include "support/two_stage_plan.h"

namespace sluice::plan {
namespace {

// The time of a kernel in a firing: often less than its cost, seldom many times as much. Whole nanoseconds, so that
// sums are exact.
double drawn_ns(uint64_t seed, int kernel, uint64_t firing, double cost_ns) {
  uint64_t x = seed * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(kernel) * 0xbf58476d1ce4e5b9u + firing + 1;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  const double uniform = static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
  return std::round(-std::log1p(-uniform) * cost_ns);
}

struct Timed {
  Recording recording;
  Timeline timeline;
  std::vector<PathLatency> paths;
  LatencyBound bound(const PathLatency& path, double quantile = 1) const {
    return latency_bound(recording.plan, path.from, path.to,
                         measured_limits(recording.plan, timeline, path.from, quantile));
  }
};

Timed timed(const Plan& plan, SimulateOptions options, uint64_t seed) {
  if (seed > 0)
    options.cost = [&plan, seed](int kernel, uint64_t firing) {
      return drawn_ns(seed, kernel, firing, plan.kernels[kernel].cost_ns);
    };
  Timed t{simulated_recording(plan, options), {}, {}};
  t.timeline = timeline_of(t.recording);
  t.paths = latencies_of(t.recording.plan, t.timeline);
  return t;
}

// feed -> a -> b -> c -> sink, each on a stream of its own or two to a stream.
Plan chain(int quota, bool shared) {
  PlanBuilder b(shared ? "shared" : "chain");
  for (int s = 0; s < 5; ++s) b.stream("cpu:0", StreamKind::kCompute, s);
  std::vector<int> actors{b.feed("feed", 0)};
  for (int i = 1; i < 4; ++i)
    actors.push_back(b.actor(std::string(1, static_cast<char>('a' + i - 1)), shared ? i / 2 : i));
  actors.push_back(b.sink("sink", shared ? 2 : 4));
  for (size_t i = 0; i + 1 < actors.size(); ++i)
    b.reg("r" + std::to_string(i), actors[i], {actors[i + 1]}, {.quota = quota});
  for (size_t i = 1; i < 4; ++i) b.run(actors[i], "host_function", {}, {}, 1000.0 * static_cast<double>(i));
  return b.build();
}

// A step is four micro-batches, of which one actor makes a sum.
Plan micro_batches() {
  PlanBuilder b("micro_batches");
  for (int s = 0; s < 3; ++s) b.stream("cpu:0", StreamKind::kCompute, s);
  const int feed = b.feed("feed", 0), part = b.actor("part", 0), sum = b.actor("sum", 1), sink = b.sink("sink", 2);
  b.plan.actors[feed].starts = 4;
  b.reg("x", feed, {part}, {.quota = 4});
  const int parts = b.reg("parts", part, {}, {.quota = 6});
  b.edge(parts, sum, 4, 1);
  b.reg("y", sum, {sink}, {.quota = 1});
  b.run(part, "host_function", {}, {}, 700);
  b.run(sum, "host_function", {}, {}, 1500);
  return b.build();
}

// A fork that is joined again, and a loop with a token in it.
Plan diamond() {
  PlanBuilder b("diamond");
  for (int s = 0; s < 4; ++s) b.stream("cpu:0", StreamKind::kCompute, s);
  const int feed = b.feed("feed", 0), left = b.actor("left", 1), right = b.actor("right", 2), both = b.actor("both", 3),
            sink = b.sink("sink", 0);
  b.reg("x", feed, {left, right}, {.quota = 3});
  b.reg("l", left, {both}, {.quota = 1});
  b.reg("r", right, {both}, {.quota = 4});
  b.reg("y", both, {sink}, {.quota = 2});
  b.reg("state", both, {left}, {.quota = 2, .initial_tokens = 1});
  b.run(left, "host_function", {}, {}, 900);
  b.run(right, "host_function", {}, {}, 1400);
  b.run(both, "host_function", {}, {}, 500);
  return b.build();
}

TEST(LatencyBound, HoldsOverManyStepsOfFivePlans) {  // C-17
  const int steps = static_cast<int>(test::repetitions(20'000, 100'000));
  int64_t items = 0;
  for (const Plan& plan : {chain(2, false), chain(2, true), micro_batches(), diamond(),
                           two_stage_plan({.quota = 3, .host_ns = 800, .compute_ns = 1200})}) {
    ASSERT_TRUE(verify(plan).ok()) << plan.name << ": " << verify(plan).str();
    const Timed t = timed(plan, {.steps = steps, .in_flight = 5}, 7);
    ASSERT_EQ(t.paths.size(), 1u) << plan.name;
    const PathLatency& path = t.paths[0];
    const LatencyBound bound = t.bound(path);
    ASSERT_EQ(path.steps, static_cast<size_t>(steps)) << plan.name;
    EXPECT_LT(bound.unheld, 0) << plan.name;
    EXPECT_LE(static_cast<double>(path.max_ns), bound.ns) << plan.name;
    EXPECT_LE(bound.ns, 40 * static_cast<double>(path.max_ns)) << plan.name << ": a bound that says nothing";
    // With less than what firings took it is no bound, so the times do count.
    EXPECT_GT(static_cast<double>(path.max_ns), t.bound(path, 0.2).ns) << plan.name;
    std::printf("%s: p50 %lld, p99 %lld, max %lld, bound %.0f\n", plan.name.c_str(),
                static_cast<long long>(path.p50_ns), static_cast<long long>(path.p99_ns),
                static_cast<long long>(path.max_ns), bound.ns);
    items += static_cast<int64_t>(path.steps);
  }
  test::report_count("latency bounds", items, "steps");
}

// Steps come near to it if each firing takes the same, and nobody shares a stream.
TEST(LatencyBound, IsNearForAChainThatIsFull) {
  for (const int quota : {1, 2, 3}) {
    const Plan plan = chain(quota, false);
    const Timed t = timed(plan, {.steps = 200}, 0);
    const LatencyBound bound = t.bound(t.paths[0]);
    EXPECT_TRUE(bound.streams.empty());
    EXPECT_GE(bound.ns, static_cast<double>(t.paths[0].max_ns)) << quota;
    EXPECT_LE(bound.ns, 1.5 * static_cast<double>(t.paths[0].max_ns)) << quota;
  }
}

TEST(LatencyBound, MoreSlotsLetMoreWorkBeAhead) {
  double last = 0;
  for (const int quota : {1, 2, 4, 8}) {
    const Timed t = timed(chain(quota, true), {.steps = 100}, 0);
    const double ns = t.bound(t.paths[0]).ns;
    EXPECT_GT(ns, last);
    last = ns;
  }
}

TEST(LatencyBound, NamesWhomNothingHoldsBack) {
  PlanBuilder b("apart");
  b.stream("cpu:0", StreamKind::kCompute, 0);
  const int feed = b.feed("feed", 0), sink = b.sink("sink", 0), other = b.source("other", 0);
  const int net = b.actor("net", 0), apart = b.actor("apart", 0);
  b.reg("x", feed, {net});
  b.reg("y", net, {sink});
  b.reg("u", other, {apart});
  b.run(net, "host_function", {}, {}, 100);
  b.run(apart, "host_function", {}, {}, 100);
  const Timed t = timed(b.build(), {.steps = 10}, 0);
  ASSERT_EQ(t.paths.size(), 1u);
  EXPECT_EQ(t.recording.plan.actors[t.bound(t.paths[0]).unheld].name, "apart");
}

TEST(LatencyBound, RefusesWhatOtherRanksDecide) {
  PlanBuilder b("ranks");
  b.stream("cpu:0");
  const int feed = b.feed("feed"), net = b.actor("net"), sink = b.sink("sink");
  b.reg("x", feed, {net});
  b.reg("y", net, {sink});
  b.plan.kernels[b.run(net, "all_reduce")].collective = 0;
  const Plan plan = b.build();
  const std::vector<double> zeros(3, 0.0);
  try {
    latency_bound(plan, feed, sink, {zeros, zeros, zeros});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("'net/all_reduce' is a collective"));
  }
}

// Random plans with rates, feedback and shared streams, each firing of which takes something else.
TEST(SoakLatencyBound, HoldsForRandomPlans) {
  const int64_t total = test::repetitions(400, 20'000);
  int64_t bounds = 0, without = 0;
  for (int64_t seed = 1; seed <= total; ++seed) {
    Plan plan = random_timed_plan(static_cast<uint64_t>(seed));
    as_control(plan);
    for (Kernel& kernel : plan.kernels) kernel.cost_ns *= 1000;
    const Timed t =
        timed(plan, {.steps = 60, .in_flight = static_cast<int>(seed % 4), .cores = static_cast<int>(seed % 3)},
              static_cast<uint64_t>(seed));
    for (const PathLatency& path : t.paths) {
      if (path.steps == 0) continue;
      const LatencyBound bound = t.bound(path);
      if (bound.unheld >= 0) {
        ++without;
        continue;
      }
      ++bounds;
      ASSERT_LE(static_cast<double>(path.max_ns), bound.ns) << "seed " << seed;
    }
  }
  EXPECT_GT(bounds, total / 2) << without << " had none";
  test::report_count("latency bounds", bounds, "random plans");
}

}  // namespace
}  // namespace sluice::plan
