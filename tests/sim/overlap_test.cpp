// Plans in virtual time: overlap, back-pressure, copies, what limits the pace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/time/simulator.h"
#include "support/two_stage_plan.h"

namespace sluice::plan {
namespace {

int actor_named(const Plan& plan, const std::string& name) {
  for (size_t a = 0; a < plan.actors.size(); ++a) {
    if (plan.actors[a].name == name) return static_cast<int>(a);
  }
  return -1;
}

std::vector<SimFiring> firings_of(const Simulation& sim, int actor) {
  std::vector<SimFiring> list;
  for (const SimFiring& f : sim.firings) {
    if (f.actor == actor) list.push_back(f);
  }
  return list;
}

// prepare -> net, both 1000 ns; net gives its slot back only at its end.
Plan balanced(int quota, double host_ns = 1000, double compute_ns = 1000) {
  PlanBuilder b("balanced");
  const int host = b.stream("cpu:0", StreamKind::kHost), compute = b.stream();
  const int other = b.stream("cpu:0", StreamKind::kHost, 1);
  const int feed = b.feed("feed", other), prepare = b.actor("prepare", host), net = b.actor("net", compute),
            sink = b.sink("sink", other);
  const int x = b.reg("x", feed, {prepare}, {.quota = 4, .bytes = 64});
  const int images = b.reg("images", prepare, {net}, {.quota = quota, .bytes = 64});
  const int y = b.reg("y", net, {sink}, {.quota = 4, .bytes = 64});
  b.run(prepare, "shift", {b.of_reg(x, {16})}, {b.of_reg(images, {16})}, host_ns);
  b.run(net, "net", {b.of_reg(images, {16})}, {b.of_reg(y, {16})}, compute_ns);
  return b.build();
}

TEST(Overlap, QuotaTwoHalvesTheTimeOfBalancedStages) {
  const Simulation one = simulate(balanced(1), {.steps = 40});
  const Simulation two = simulate(balanced(2), {.steps = 40});
  EXPECT_DOUBLE_EQ(one.period_ns, 2000);
  EXPECT_DOUBLE_EQ(two.period_ns, 1000);
  EXPECT_FALSE(one.deadlocked);
  EXPECT_DOUBLE_EQ(simulate(balanced(3), {.steps = 40}).period_ns, 1000);
}

TEST(Overlap, TheCriticalCycleNamesWhatLimits) {
  const Plan one = balanced(1), two = balanced(2, 300, 1000);
  const std::string slow = critical_str(one, simulate(one, {.steps = 40}).critical);
  EXPECT_TRUE(slow == "'prepare' -(data 'images')-> 'net' -(slot of 'images')-> 'prepare'" ||
              slow == "'net' -(slot of 'images')-> 'prepare' -(data 'images')-> 'net'")
      << slow;
  EXPECT_EQ(critical_str(two, simulate(two, {.steps = 40}).critical), "'net' -(stream cpu:0/compute0)-> 'net'");
}

TEST(Overlap, AProducerIsNeverMoreThanItsQuotaAhead) {
  for (const int quota : {1, 2, 3, 5}) {
    const Plan plan = balanced(quota, 10, 1000);
    const Simulation sim = simulate(plan, {.steps = 50});
    const int images = 1;
    ASSERT_EQ(plan.registers[images].name, "images");
    EXPECT_EQ(sim.peak_slots[images], quota);
    const auto made = firings_of(sim, actor_named(plan, "prepare")), used = firings_of(sim, actor_named(plan, "net"));
    for (size_t i = 0; i < made.size(); ++i) {
      size_t done = 0;
      while (done < used.size() && used[done].end_ns <= made[i].begin_ns) ++done;
      EXPECT_LE(i - done, static_cast<size_t>(quota - 1)) << "firing " << i;
    }
    EXPECT_NEAR(sim.period_ns, quota == 1 ? 1010 : 1000, 1e-6);
  }
}

TEST(Overlap, StreamsAreSerialAndEveryFiringIsThere) {
  const Plan plan = two_stage_plan();
  const Simulation sim = simulate(plan, {.steps = 10});
  EXPECT_EQ(sim.firings.size(), 40u);
  EXPECT_EQ(sim.kernels.size(), 30u);
  std::vector<double> free(plan.streams.size());
  for (const SimFiring& f : sim.firings) {
    EXPECT_GE(f.begin_ns, free[plan.actors[f.actor].stream]);
    free[plan.actors[f.actor].stream] = f.end_ns;
  }
  EXPECT_FALSE(sim.deadlocked);
  EXPECT_DOUBLE_EQ(sim.stream_busy_ns[1], 10'000);
}

TEST(Overlap, AnEarlyReleaseLetsTheProducerStartEarlier) {
  // The net of two_stage releases its images after half its time: quota 1 costs only half a stage.
  EXPECT_DOUBLE_EQ(simulate(two_stage_plan({.quota = 1}), {.steps = 40}).period_ns, 1500);
  EXPECT_DOUBLE_EQ(simulate(two_stage_plan({.quota = 2}), {.steps = 40}).period_ns, 1000);
}

TEST(Overlap, StepsInFlightBoundThePace) {
  const Plan plan = balanced(2);
  EXPECT_DOUBLE_EQ(simulate(plan, {.steps = 40, .in_flight = 1}).period_ns, 2000);
  EXPECT_DOUBLE_EQ(simulate(plan, {.steps = 40, .in_flight = 2}).period_ns, 1000);
}

TEST(Overlap, MessageLatencyCountsOnlyAcrossStreams) {
  EXPECT_DOUBLE_EQ(simulate(balanced(1), {.steps = 40, .message_ns = 50}).period_ns, 2100);
  EXPECT_DOUBLE_EQ(simulate(balanced(2), {.steps = 40, .firing_ns = 10}).period_ns, 1010);
}

TEST(Overlap, CopiesOverlapWithCompute) {
  const auto plan = [](int quota) {
    PlanBuilder b("copies");
    const int host = b.stream("cpu:0", StreamKind::kHost), in = b.stream("sim:0", StreamKind::kCopyIn);
    const int compute = b.stream("sim:0"), out = b.stream("sim:0", StreamKind::kCopyOut);
    const int device = b.space(SpaceKind::kDevice, "sim:0");
    const int feed = b.feed("feed", host), h2d = b.actor("h2d", in), net = b.actor("net", compute);
    const int d2h = b.actor("d2h", out), sink = b.sink("sink", host);
    const int x = b.reg("x", feed, {h2d}, {.quota = 4, .bytes = 64});
    const int dx = b.reg("dx", h2d, {net}, {.quota = quota, .bytes = 64, .space = device});
    const int dy = b.reg("dy", net, {d2h}, {.quota = quota, .bytes = 64, .space = device});
    const int y = b.reg("y", d2h, {sink}, {.quota = 4, .bytes = 64});
    b.run(h2d, "copy", {b.of_reg(x, {16})}, {b.of_reg(dx, {16})}, 400);
    b.run(net, "net", {b.of_reg(dx, {16})}, {b.of_reg(dy, {16})}, 1000);
    b.run(d2h, "copy", {b.of_reg(dy, {16})}, {b.of_reg(y, {16})}, 400);
    return b.build();
  };
  EXPECT_DOUBLE_EQ(simulate(plan(2), {.steps = 40}).period_ns, 1000);
  EXPECT_DOUBLE_EQ(simulate(plan(1), {.steps = 40}).period_ns, 1400);
}

TEST(Overlap, AccumulationFiresInItsRates) {
  PlanBuilder b("accumulate");
  const int host = b.stream("cpu:0", StreamKind::kHost), compute = b.stream();
  const int feed = b.feed("feed", host), net = b.actor("net", compute), update = b.sink("update", compute);
  const int x = b.reg("x", feed, {net}, {.quota = 2, .bytes = 64});
  const int g = b.reg("g", net, {update}, {.bytes = 64, .emit_every = 4});
  b.run(net, "backward", {b.of_reg(x, {16})}, {b.of_reg(g, {16})}, 100);
  b.run(update, "sgd", {b.of_reg(g, {16})}, {}, 40);
  const Plan plan = b.build();
  const Simulation sim = simulate(plan, {.steps = 32});
  EXPECT_EQ(firings_of(sim, net).size(), 32u);
  EXPECT_EQ(firings_of(sim, update).size(), 8u);
  EXPECT_DOUBLE_EQ(sim.period_ns, 110);
}

TEST(Overlap, BurstsOfAFastStageDoNotBlurThePeriod) {
  // The host stages fire in bursts as slots come back; the period is the net's all the same, however few the steps.
  for (const int steps : {4, 5, 8, 13, 40}) {
    EXPECT_DOUBLE_EQ(simulate(two_stage_plan({.quota = 2, .host_ns = 3}), {.steps = steps}).period_ns, 1000) << steps;
  }
}

TEST(Overlap, ABlockedPlanIsReportedAsSuch) {
  PlanBuilder b;
  b.stream();
  const int feed = b.feed("feed"), one = b.actor("one"), two = b.sink("two");
  b.reg("x", feed, {one});
  b.reg("a", one, {two});
  b.reg("b", two, {one});
  const Simulation sim = simulate(b.build(false), {.steps = 4});
  EXPECT_TRUE(sim.deadlocked);
  EXPECT_THAT(sim.blocked, ::testing::HasSubstr("'two' waits for data on 'a' from 'one'"));
}

}  // namespace
}  // namespace sluice::plan
