// Plans of several ranks that meet in collectives: what verify() accepts meets in one order and never blocks, however
// the messages come; what it refuses blocks, or meets in another order, in some order of messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "explorer/generator.h"
#include "explorer/judge.h"
#include "support/pipeline_plan.h"

namespace sluice::explorer {
namespace {

using plan::FiringRule;

// Two or three ranks with one or two streams each, up to three calls of one or two groups, and actors between them.
Plan random_ranks(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  PlanBuilder b("ranks_" + std::to_string(seed));
  const int ranks = pick(6) ? 2 : 3, groups = 1 + pick(2);
  std::vector<int> calls(static_cast<size_t>(1 + pick(ranks == 3 ? 2 : 3)));
  for (int& group : calls) group = pick(groups);
  std::vector<std::vector<int>> made(static_cast<size_t>(ranks)), streams(static_cast<size_t>(ranks));
  const auto join = [&](int from, int to, int initial = 0) {
    for (const plan::Register& r : b.plan.registers) {
      const int e = b.edge_of(static_cast<int>(&r - b.plan.registers.data()), to);
      if (r.producer == from && e >= 0) return;
    }
    b.reg("r" + std::to_string(b.plan.registers.size()), from, {to},
          {.quota = std::max(initial, 1 + pick(3)), .initial_tokens = initial});
  };
  for (int r = 0; r < ranks; ++r) {
    const std::string rank = std::to_string(r);
    const int n = 1 + pick(2);
    for (int s = 0; s < n; ++s) streams[r].push_back(b.stream(rank + "/cpu:0", plan::StreamKind::kCompute, s));
    const auto stream = [&] { return streams[r][pick(n)]; };
    std::vector<int> order = calls;
    if (pick(6) == 0) std::shuffle(order.begin(), order.end(), random);
    const int source = b.source("source" + rank, stream());
    int last = -1;
    for (size_t i = 0; i < order.size(); ++i) {
      const bool together = last >= 0 && pick(4) == 0;  // two calls in one program
      const int actor = together ? last : b.actor("call" + std::to_string(i) + "_" + rank, stream());
      if (!together) {
        if (last < 0 || pick(3) == 0) join(source, actor);
        if (last >= 0 && pick(8) != 0) join(last, actor);
        if (last >= 0 && b.edge_of(static_cast<int>(b.plan.registers.size()) - 1, actor) < 0) join(source, actor);
        made[r].push_back(actor);
      }
      b.plan.kernels[b.run(actor, "all_reduce")].collective = order[i];
      last = actor;
    }
    if (pick(2)) {
      const int work = b.actor("work" + rank, stream());
      join(pick(2) ? source : made[r][pick(static_cast<int>(made[r].size()))], work);
      made[r].push_back(work);
    }
  }
  const int extra = pick(4);
  for (int i = 0; i < extra; ++i) {
    const std::vector<int>&one = made[pick(ranks)], &two = made[pick(ranks)];
    const int from = one[pick(static_cast<int>(one.size()))], to = two[pick(static_cast<int>(two.size()))];
    if (from != to) join(from, to, pick(4) ? 0 : 1 + pick(2));
  }
  // A program may emit and release before, between and after its calls.
  const plan::Adjacency adjacency(b.plan);
  for (int a = 0; a < static_cast<int>(b.plan.actors.size()); ++a) {
    std::vector<plan::Instr>& program = b.plan.actors[a].program;
    const auto put = [&](plan::Instr i) {
      const int at = pick(3) ? static_cast<int>(program.size()) : pick(static_cast<int>(program.size()) + 1);
      program.insert(program.begin() + at, i);
    };
    for (const int r : adjacency.out_registers[a]) put({InstrKind::kEmit, r});
    for (const int e : adjacency.in_edges[a]) put({InstrKind::kRelease, e});
  }
  return finished(b);
}

struct RanksTally : Tally {
  int64_t meetings = 0, refused_by_order = 0, refused_by_deadlock = 0;
};

std::string ranks_disagreement(const Plan& plan, RanksTally& tally, uint64_t seed) {
  ++tally.plans;
  const plan::VerifyReport report = verified(plan);
  const std::string text = report.ok() ? "" : report.problems[0].concern + ": " + report.problems[0].text;
  if (!report.ok() && !text.starts_with("collectives: ")) {
    ++tally.other;
    return text.starts_with("structure: ") ? text + plan_str(plan) : "";
  }
  const int period = period_steps(plan, report.repetitions);
  const Budget budget{.states = 4'000, .walks = 100};
  if (report.ok()) {
    ++tally.accepted;
    std::vector<int> owed = report.repetitions;
    for (int& n : owed) n *= 3;
    World<FiringRule> world(plan, {.hosting = Hosting::kStreams, .steps = 3 * period, .owed = owed});
    const Outcome o = walk(world, budget, tally, seed);
    return o.ok() ? "" : "accepted, but:\n" + story(world, o);
  }
  ++tally.refused;
  ++(text.find("deadlock") != std::string::npos ? tally.refused_by_deadlock : tally.refused_by_order);
  // Some block in very few of their orders: those are looked for longer.
  for (const Budget search :
       {Budget{.states = 20'000, .walks = 1'000}, Budget{.states = 3'000'000, .walks = 100'000}}) {
    for (const int periods : {1, 2, 4, 8}) {
      std::vector<int> owed = report.repetitions;
      for (int& n : owed) n *= periods;
      World<FiringRule> world(plan,
                              {.hosting = Hosting::kStreams, .steps = periods * period, .stop = false, .owed = owed});
      const Outcome o = walk(world, search, tally, seed);
      if (!o.ok() && !o.broken.starts_with("blocked: ") && !o.broken.starts_with("collectives: "))
        return "refused, but for another reason:\n" + text + "\n" + story(world, o);
      if (!o.ok()) return "";
    }
  }
  return "refused, but it always meets in one order and never blocks: " + text + "\n" + plan_str(plan);
}

TEST(SoakExplorer, CollectivesMeetInOneOrderOrAreRefused) {
  const int64_t n = test::repetitions(800, 30'000);
  RanksTally tally;
  test::Progress progress("plans of several ranks", n);
  int shown = 0;
  for (int64_t i = 0; i < n && shown < 8; ++i) {
    const std::string fault =
        ranks_disagreement(random_ranks(static_cast<uint64_t>(i)), tally, static_cast<uint64_t>(i));
    EXPECT_EQ(fault, "") << "seed " << i;
    shown += !fault.empty();
    progress.step();
  }
  tally.report("explorer, collectives");
  test::report_count("explorer, collectives refused for their order", tally.refused_by_order, "plans");
  test::report_count("explorer, collectives refused for a deadlock", tally.refused_by_deadlock, "plans");
  EXPECT_GT(tally.accepted, n / 10);
  EXPECT_GT(tally.refused_by_order, n / 50);
  EXPECT_GT(tally.refused_by_deadlock, n / 50);
}

// The explorer's findings about a plan that verify() must refuse.
std::string seen(const Plan& plan, int periods) {
  std::vector<int> owed = plan::repetition_vector(plan);
  const int steps = periods * period_steps(plan, owed);
  for (int& n : owed) n *= periods;
  World<FiringRule> world(plan, {.hosting = Hosting::kStreams, .steps = steps, .stop = false, .owed = owed});
  return Search(world, SearchOptions{.max_states = 200'000}).all().broken;
}

TEST(Collectives, TheKnownDeadlockIsRefusedAndBlocks) {
  EXPECT_THAT(plan::verify(plan::pipeline_plan({})).str(),
              ::testing::HasSubstr("liveness: deadlock: 'forward0' waits"));
  EXPECT_THAT(seen(plan::pipeline_plan({}), 1), ::testing::StartsWith("blocked: "));
  // With slots enough, the collectives between the stages cross.
  const Plan crossing = plan::pipeline_plan({.crossing_collectives = true, .saved_quota = 4});
  EXPECT_THAT(plan::verify(crossing).str(), ::testing::HasSubstr("collectives: "));
  EXPECT_THAT(seen(crossing, 2), ::testing::AnyOf(::testing::StartsWith("blocked: "), ::testing::StartsWith("collec")));
  const Plan good = plan::pipeline_plan({.saved_quota = 4});
  EXPECT_EQ(verified(good).str(), "");
  EXPECT_EQ(seen(good, 1), "");
}

}  // namespace
}  // namespace sluice::explorer
