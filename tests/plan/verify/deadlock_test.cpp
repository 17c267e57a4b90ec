// Plans that block: the shapes known from practice, and thousands of random ones against an exhaustive search.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>

#include "plan/firing/network.h"
#include "plan/verify/quota.h"
#include "support/pipeline_plan.h"
#include "support/plan_builder.h"

namespace sluice::plan {
namespace {

using ::testing::HasSubstr;

// The first problem, but for those of how callers count steps.
std::string deadlock_of(const Plan& plan) {
  for (const Problem& problem : verify(plan).problems) {
    if (problem.concern != "steps") return problem.concern + ": " + problem.text;
  }
  return "";
}

TEST(Deadlock, ABackwardBufferInTheForwardChainIsRefusedWithItsCycle) {
  EXPECT_EQ(
      deadlock_of(pipeline_plan({})),
      "liveness: deadlock: 'forward0' waits for data on 'chain' from 'buffer'; 'buffer' waits for a free slot of "
      "'saved' "
      "(quota 1) held by 'backward0'; 'backward0' waits for data on 'gradient' from 'stage1_backward'; "
      "'stage1_backward' waits for data on 'h' from 'stage1'; 'stage1' waits for data on 'activation' from 'forward0'; "
      "a register of the cycle needs more slots or initial tokens");
}

TEST(Deadlock, TheFixedPipelineRunsTenThousandSteps) {
  EXPECT_EQ(deadlock_of(pipeline_plan({.saved_quota = 4})), "");
  EXPECT_EQ(deadlock_of(pipeline_plan({.buffer_on_forward_stream = false, .saved_quota = 4})), "");
  // Off the chain the buffer's own quota may stay small: the activation register holds what it has not copied yet.
  const Plan plan = pipeline_plan({.buffer_on_forward_stream = false, .saved_quota = 1});
  EXPECT_EQ(deadlock_of(plan), "");
  Network network(plan);
  std::vector<int> repetitions = repetition_vector(plan), schedule;
  for (int& n : repetitions) n *= 10'000;
  for (const int left : run_greedily(network, repetitions, schedule)) EXPECT_EQ(left, 0);
}

TEST(Deadlock, TheQuotaSolverFindsTheSlotsThePipelineNeeds) {
  const Plan plan = pipeline_plan({});
  std::vector<bool> fixed(plan.registers.size());
  const std::vector<int> quotas = minimal_quotas(plan, fixed);
  int saved = 0;
  for (size_t r = 0; r < quotas.size(); ++r) {
    if (plan.registers[r].name == "saved") saved = quotas[r];
    if (plan.registers[r].name == "repeat") {
      EXPECT_EQ(quotas[r], 1);
    }
  }
  EXPECT_EQ(saved, 3);  // the chain's own token lets the fourth pass
  for (size_t r = 0; r < quotas.size(); ++r) fixed[r] = plan.registers[r].name == "saved";
  try {
    minimal_quotas(plan, fixed);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("the quotas given are too small"));
  }
}

// --- collectives ---

// Rank 0 calls a then b, rank 1 b then a, each in its own group; the streams hold them until both are there.
Plan two_ranks(bool crossed, bool ordered = true, bool other_shape = false) {
  PlanBuilder b("two_ranks");
  int actors[2][2];
  for (int r = 0; r < 2; ++r) {
    const std::string rank = std::to_string(r);
    const int stream = b.stream(rank + "/cpu:0");
    const int source = b.source("source" + rank, stream);
    const bool a_first = r == 0 || !crossed;
    actors[r][0] = b.actor((a_first ? "a" : "b") + rank, stream);
    actors[r][1] = b.actor((a_first ? "b" : "a") + rank, stream);
    b.reg("go" + rank, source, {actors[r][0], actors[r][1]});
    if (ordered) b.reg("order" + rank, actors[r][0], {actors[r][1]});
    for (int i = 0; i < 2; ++i) {
      const int w = b.variable("w" + rank + std::to_string(i), {r == 1 && other_shape ? 8 : 16});
      const Shape shape{r == 1 && other_shape ? 8 : 16};
      const int k = b.run(actors[r][i], "all_reduce", {b.of_variable(w, shape)}, {b.of_variable(w, shape)});
      b.plan.kernels[k].collective = (i == 0) == a_first ? 0 : 1;
    }
  }
  return b.build();
}

TEST(Deadlock, CollectivesInOneOrderAreAccepted) { EXPECT_EQ(deadlock_of(two_ranks(false)), ""); }

TEST(Deadlock, CrossedCollectivesAreRefusedWithTheirCycle) {
  EXPECT_EQ(
      deadlock_of(two_ranks(true)),
      "collectives: deadlock: 'a0' is in collective 'a0/all_reduce' and waits for rank 1, where 'a1' has yet to call "
      "'a1/all_reduce'; 'a1' waits for data on 'order1' from 'b1'; 'b1' is in collective 'b1/all_reduce' and waits for "
      "rank 0, where 'b0' has yet to call 'b0/all_reduce'; 'b0' waits for data on 'order0' from 'a0'; the calls must "
      "come in one order on all ranks");
}

TEST(Deadlock, CollectivesThatMayTakeOneAnothersStreamAreRefused) {
  EXPECT_EQ(
      deadlock_of(two_ranks(false, false)),
      "collectives: deadlock: 'a0' is in collective 'a0/all_reduce', for which another rank needs 'a1'; 'a1' waits "
      "for stream '1/cpu:0/compute0', held by 'b1'; 'b1' is in collective 'b1/all_reduce', for which another rank "
      "needs 'b0'; 'b0' waits for stream '0/cpu:0/compute0', held by 'a0'; order the firings of the stream by a "
      "control register");
}

TEST(Deadlock, CallsOfOneGroupWithoutAFixedOrderAreRefused) {
  Plan plan = two_ranks(false, false);
  for (Kernel& k : plan.kernels) k.collective = k.collective >= 0 ? 0 : -1;
  EXPECT_EQ(
      deadlock_of(plan),
      "collectives: group 0 on rank 0: nothing makes 'a0/all_reduce' come before 'b0/all_reduce'; order them by a "
      "control register");
}

// Rank 0's call and what rank 1 needs before its own share a stream, and nothing orders them: the call may come first.
TEST(Deadlock, ACallThatMayTakeTheStreamFromWhatItsMeetingNeedsIsRefused) {
  const auto ranks = [](bool ordered) {
    PlanBuilder b("ranks");
    const int shared = b.stream("0/cpu:0", StreamKind::kCompute, 0),
              other = b.stream("0/cpu:0", StreamKind::kCompute, 1);
    const int remote = b.stream("1/cpu:0");
    const int source = b.source("source", other), needed = b.actor("needed", shared);
    const int call0 = b.actor("call0", shared), call1 = b.actor("call1", remote);
    b.reg("go", source, {needed, call0});
    b.reg("there", needed, {call1});
    if (ordered) b.reg("order", needed, {call0});
    b.plan.kernels[b.run(call0, "all_reduce")].collective = 0;
    b.plan.kernels[b.run(call1, "all_reduce")].collective = 0;
    return b.build();
  };
  EXPECT_EQ(deadlock_of(ranks(true)), "");
  EXPECT_EQ(
      deadlock_of(ranks(false)),
      "collectives: deadlock: 'call0' is in collective 'call0/all_reduce', for which another rank needs 'needed'; "
      "'needed' waits for stream '0/cpu:0/compute0', held by 'call0'; order the firings of the stream by a control "
      "register");
}

TEST(Deadlock, DifferentCallsOfOneGroupAreRefused) {
  EXPECT_EQ(deadlock_of(two_ranks(false, true, true)),
            "collectives: group 0: call 0: rank 0 calls 'a0/all_reduce', all_reduce(float32(16,)); rank 1 calls "
            "'a1/all_reduce', all_reduce(float32(8,)); all ranks must meet the same call");
}

TEST(Deadlock, CollectivesThatWaitForEachOthersDataAreRefused) {
  // With collectives on both ways the repeat shape blocks even with enough slots: the forward stream waits in a
  // gather for stage 1, which needs the forward's emission.
  EXPECT_THAT(deadlock_of(pipeline_plan({.crossing_collectives = true, .saved_quota = 4})), HasSubstr("collectives: "));
}

// --- random plans against exhaustive search ---

Plan random_plan(std::mt19937& random) {
  const auto pick = [&](int n) { return static_cast<int>(random() % n); };
  PlanBuilder b;
  b.stream();
  std::vector<int> actors{b.source("s")};
  const int extra = 1 + pick(4);
  for (int i = 0; i < extra; ++i) {
    const int a = b.actor("a" + std::to_string(i));
    const int r = b.reg("r" + std::to_string(i), actors[pick(static_cast<int>(actors.size()))], {},
                        {.quota = 1 + pick(2), .emit_every = pick(5) ? 1 : 2});
    const int take = pick(6) ? 1 : b.plan.registers[r].quota;
    b.edge(r, a, take, pick(5) ? 1 : 2);
    actors.push_back(a);
  }
  const int more = 1 + pick(3);
  for (int i = 0; i < more; ++i) {
    const int from = actors[pick(static_cast<int>(actors.size()))], to = actors[pick(static_cast<int>(actors.size()))];
    const int quota = 1 + pick(2);
    const int r =
        b.reg("x" + std::to_string(i), from, {},
              {.quota = quota, .emit_every = pick(6) ? 1 : 2, .initial_tokens = pick(2) ? 0 : pick(quota + 1)});
    b.edge(r, to, 1, pick(6) ? 1 : 2);
    if (pick(3) == 0) {
      const int second = actors[pick(static_cast<int>(actors.size()))];
      if (second != to) b.edge(r, second);
    }
  }
  return b.build(false);
}

// All reachable states, one firing at a time; live when from every state every actor can fire again some day.
bool live_by_search(const Plan& plan, bool& too_large) {
  std::map<std::vector<int>, int> ids;
  std::vector<Network> states;
  std::vector<std::vector<std::pair<int, int>>> backward;  // per state: (actor fired, from state)
  const auto id_of = [&](Network& network) {
    for (int a = 0; a < network.actors(); ++a) {
      if (plan.actors[a].role == ActorRole::kSource && network.rules[a].start_credits() == 0)
        network.rules[a].on_start(1);
    }
    const auto [it, fresh] = ids.emplace(network.state(), static_cast<int>(states.size()));
    if (fresh) {
      states.push_back(network);
      backward.emplace_back();
    }
    return it->second;
  };
  Network start(plan);
  id_of(start);
  for (size_t s = 0; s < states.size(); ++s) {
    if (states.size() > 3000) {
      too_large = true;
      return false;
    }
    for (int a = 0; a < start.actors(); ++a) {
      if (!states[s].rules[a].can_fire()) continue;
      Network next = states[s];
      std::vector<int> touched;
      next.fire(a, touched);
      backward[id_of(next)].push_back({a, static_cast<int>(s)});
    }
  }
  for (int a = 0; a < start.actors(); ++a) {
    std::vector<bool> good(states.size());
    std::deque<int> queue;
    const auto add = [&](int s) {
      if (good[s]) return;
      good[s] = true;
      queue.push_back(s);
    };
    for (const auto& arcs : backward) {
      for (const auto& [fired, from] : arcs) {
        if (fired == a) add(from);
      }
    }
    while (!queue.empty()) {
      const int s = queue.front();
      queue.pop_front();
      for (const auto& [fired, from] : backward[s]) add(from);
    }
    if (std::find(good.begin(), good.end(), false) != good.end()) return false;
  }
  return true;
}

TEST(Deadlock, TheVerdictOnRandomPlansEqualsExhaustiveSearch) {
  int live = 0, blocked = 0, skipped = 0;
  for (unsigned seed = 0; seed < 30'000; ++seed) {
    std::mt19937 random(seed);
    const Plan plan = random_plan(random);
    try {
      repetition_vector(plan);
    } catch (const Error&) {
      ++skipped;  // no period: another concern
      continue;
    }
    bool too_large = false;
    const bool expected = live_by_search(plan, too_large);
    if (too_large) {
      ++skipped;
      continue;
    }
    bool found = true;
    std::string text;
    try {
      Plan certified = plan;
      certified.certificate = find_schedule(plan);
      VerifyReport report;
      verify_rates(certified, report);
      verify_liveness(certified, report);
      EXPECT_TRUE(report.ok()) << "seed " << seed << " " << report.str();
    } catch (const Error& e) {
      found = false;
      text = e.what();
      EXPECT_THAT(text, HasSubstr("waits for")) << "seed " << seed;
    }
    ASSERT_EQ(found, expected) << "seed " << seed << " " << text << "\n";
    ++(found ? live : blocked);
  }
  EXPECT_GT(live, 1000);
  EXPECT_GT(blocked, 1000);
  EXPECT_GT(live + blocked, 3000);
  RecordProperty("live", live);
  RecordProperty("blocked", blocked);
}

TEST(Deadlock, MinimalQuotasAreLiveAndNoneCanBeLowered) {
  int solved = 0;
  for (unsigned seed = 0; seed < 6000; ++seed) {
    std::mt19937 random(seed);
    Plan plan = random_plan(random);
    std::vector<int> quotas;
    try {
      quotas = minimal_quotas(plan, std::vector<bool>(plan.registers.size()));
    } catch (const Error&) {
      continue;  // inconsistent rates, or a cycle without tokens
    }
    ++solved;
    const auto live_with = [&](const std::vector<int>& q) {
      Plan trial = plan;
      for (size_t r = 0; r < q.size(); ++r) trial.registers[r].quota = q[r];
      try {
        find_schedule(trial);
        return true;
      } catch (const Error&) {
        return false;
      }
    };
    ASSERT_TRUE(live_with(quotas)) << seed;
    const Adjacency adjacency(plan);
    for (size_t r = 0; r < quotas.size(); ++r) {
      if (quotas[r] == least_quota(plan, adjacency, static_cast<int>(r))) continue;
      std::vector<int> lower = quotas;
      --lower[r];
      EXPECT_FALSE(live_with(lower)) << "seed " << seed << " register " << r;
    }
  }
  EXPECT_GT(solved, 300);
}

}  // namespace
}  // namespace sluice::plan
