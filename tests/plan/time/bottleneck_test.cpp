// Tests that the gains which plan-viz bottleneck promises come true when the plan is changed so.
#include "plan/time/bottleneck.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/soak.h"
#include "support/timed_plan.h"
#include "support/two_stage_plan.h"

namespace sluice::plan {
namespace {

const SimulateOptions kSteps{.steps = 40};

TEST(Bottleneck, NamesTheSlotAndTheKernelsThatWouldHelp) {
  const Plan plan = two_stage_plan({.quota = 1});  // prepare 1000; mul, after which its slot is free, and sum 500 each
  const Bottleneck found = find_bottleneck(plan, kSteps);
  EXPECT_DOUBLE_EQ(found.now.period_ns, 1500);
  ASSERT_EQ(found.slots.size(), 1u);
  EXPECT_EQ(plan.registers[found.slots[0].reg].name, "images");
  EXPECT_DOUBLE_EQ(found.slots[0].period_ns, simulate(two_stage_plan({.quota = 2}), kSteps).period_ns);
  ASSERT_EQ(found.kernels.size(), 3u);
  EXPECT_EQ(plan.kernels[found.kernels[0].kernels[0]].op, "shift");
  EXPECT_DOUBLE_EQ(found.kernels[0].cost_ns, 1000);
  EXPECT_DOUBLE_EQ(found.kernels[0].period_ns,
                   simulate(two_stage_plan({.quota = 1, .host_ns = 500}), kSteps).period_ns);
}

TEST(Bottleneck, WhereAStreamIsBusyNoSlotHelps) {
  const Bottleneck found = find_bottleneck(two_stage_plan({.quota = 2, .host_ns = 200}), kSteps);
  EXPECT_TRUE(found.slots.empty());
  ASSERT_EQ(found.kernels.size(), 2u);  // of the net alone: 'prepare' is not in the cycle
  EXPECT_DOUBLE_EQ(found.kernels[0].period_ns, 750);
}

TEST(Bottleneck, KernelsOfOneSignatureAreOne) {
  PlanBuilder b("twins");
  const int compute = b.stream();
  const int feed = b.feed("feed", compute), net = b.actor("net", compute), sink = b.sink("sink", compute);
  const int x = b.reg("x", feed, {net}, {.quota = 2, .bytes = 64}),
            y = b.reg("y", net, {sink}, {.quota = 2, .bytes = 64});
  const int scratch = b.buffer("hidden", 64);
  b.run(net, "relu", {b.of_reg(x, {16})}, {b.of_buffer(scratch, {16})}, 300);
  b.run(net, "relu", {b.of_buffer(scratch, {16})}, {b.of_reg(y, {16})}, 300);
  const Bottleneck found = find_bottleneck(b.build(), kSteps);
  ASSERT_EQ(found.kernels.size(), 1u);
  EXPECT_EQ(found.kernels[0].kernels.size(), 2u);
  EXPECT_DOUBLE_EQ(found.kernels[0].cost_ns, 600);
  EXPECT_DOUBLE_EQ(found.kernels[0].period_ns, 300);
}

TEST(Bottleneck, NothingIsSaidOfAPlanWithoutCosts) {
  const Bottleneck found = find_bottleneck(two_stage_plan({.host_ns = 0, .compute_ns = 0}), kSteps);
  EXPECT_TRUE(found.kernels.empty());
}

// The advice is followed in the plan's own data, as a reader of the text would, and looked at afresh.
TEST(SoakBottleneck, AdviceComesTrue) {
  const int64_t total = test::repetitions(200, 3000);
  int64_t followed = 0;
  for (uint64_t seed = 0; followed < total; ++seed) {
    const Plan plan = random_timed_plan(seed);
    const Bottleneck found = find_bottleneck(plan, kSteps);
    if (found.now.deadlocked || found.now.critical.empty() || found.now.period_ns <= 0) continue;
    const auto follow = [&](Plan changed, double forecast) {
      const double period = simulate(changed, kSteps).period_ns;
      EXPECT_NEAR(period, forecast, 0.1 * period) << "seed " << seed;
      ++followed;
    };
    for (const SlotGain& gain : found.slots) {
      Plan changed = plan;
      ++changed.registers[gain.reg].quota;
      follow(std::move(changed), gain.period_ns);
    }
    for (const KernelGain& gain : found.kernels) {
      Plan changed = plan;
      for (const int kernel : gain.kernels) changed.kernels[kernel].cost_ns *= 0.5;
      follow(std::move(changed), gain.period_ns);
    }
  }
  test::report_count("bottlenecks: advice followed", followed, "changes");
}

}  // namespace
}  // namespace sluice::plan
