// Numbers of firings say where the tokens are and who waits: compared with the firing rules at every moment of runs in
// random orders.
#include "plan/firing/token_counts.h"

#include <gtest/gtest.h>

#include <random>

#include "plan/firing/firing_counts.h"
#include "plan/firing/network.h"
#include "support/plan_builder.h"
#include "support/two_stage_plan.h"

namespace sluice::plan {
namespace {

// Several rates, several readers, a loop with initial tokens, and a register in place of another.
Plan mixed_rates() {
  PlanBuilder b("mixed");
  b.stream("cpu:0");
  const int feed = b.feed("feed"), split = b.actor("split"), slow = b.actor("slow"), join = b.actor("join"),
            sink = b.sink("sink");
  const int x = b.reg("x", feed, {split, join}, {.quota = 3, .bytes = 64});
  const int y = b.reg("y", split, {slow}, {.quota = 2, .bytes = 64});
  b.reg("z", slow, {join}, {.quota = 2, .bytes = 64});
  b.reg("loop", join, {split}, {.quota = 3, .bytes = 0, .initial_tokens = 2});
  b.reg("out", join, {sink}, {.quota = 4, .bytes = 64, .emit_every = 2});
  b.input("x", x, b.f32({16}));
  Plan plan = b.build();
  for (Edge& edge : plan.edges) {
    if (edge.consumer == sink) edge.take = 2, edge.hold = 1;
  }
  static_cast<void>(y);
  return plan;
}

Plan with_in_place() {
  PlanBuilder b("in place");
  b.stream("cpu:0");
  const int feed = b.feed("feed"), net = b.actor("net"), sink = b.sink("sink");
  const int x = b.reg("x", feed, {net}, {.quota = 2, .bytes = 64});
  int edge = -1;
  for (size_t e = 0; e < b.plan.edges.size(); ++e) {
    if (b.plan.edges[e].reg == x) edge = static_cast<int>(e);
  }
  const int y = b.reg("y", net, {sink}, {.quota = 2, .bytes = 64, .in_place_of = edge});
  b.input("x", x, b.f32({16}));
  b.output("y", b.of_reg(y, {16}));
  return b.build();
}

TEST(TokenCounts, SayWhatTheFiringRulesSay) {
  size_t compared = 0;
  for (const Plan& plan : {two_stage_plan(), two_stage_plan({.quota = 1}), mixed_rates(), with_in_place()}) {
    for (int seed = 0; seed < 20; ++seed) {
      Network network(plan);
      const FiringCounts counts(plan);
      std::mt19937 random(static_cast<unsigned>(seed));
      const uint64_t steps = 6;
      std::vector<uint64_t> started(plan.actors.size());
      for (int a = 0; a < network.actors(); ++a) {
        if (is_started(plan.actors[a])) started[a] = counts.after(a, steps);
        network.rules[a].on_start(started[a]);
      }
      std::vector<int> touched;
      while (true) {
        std::vector<uint64_t> fired;
        std::vector<int> ready;
        for (int a = 0; a < network.actors(); ++a) {
          fired.push_back(network.rules[a].firings());
          if (network.rules[a].can_fire()) ready.push_back(a);
        }
        const std::vector<TokenCounts> tokens = token_counts(plan, network.adjacency(), fired);
        for (size_t r = 0; r < plan.registers.size(); ++r, ++compared) {
          const int free = network.rules[plan.registers[r].producer].free_slots(network.out_port(static_cast<int>(r)));
          EXPECT_EQ(tokens[r].used, plan.registers[r].quota - free) << plan.name << " " << plan.registers[r].name;
        }
        for (int a = 0; a < network.actors(); ++a, ++compared) {
          const auto missing = missing_message(plan, network.adjacency(), tokens, fired, a, started[a]);
          ASSERT_EQ(!missing, network.rules[a].can_fire()) << plan.name << " " << plan.actors[a].name;
          if (!missing) continue;
          EXPECT_TRUE(std::ranges::any_of(network.rules[a].waits(),
                                          [&](const FiringRule::Wait& wait) {
                                            return wait.credit == missing->credit && wait.index == missing->index;
                                          }))
              << plan.name << " " << plan.actors[a].name << " " << missing->str(plan);
        }
        if (ready.empty()) break;
        network.fire(ready[random() % ready.size()], touched);
      }
    }
  }
  std::printf("count: %zu counts compared\n", compared);
  EXPECT_GT(compared, 4000u);
}

}  // namespace
}  // namespace sluice::plan
