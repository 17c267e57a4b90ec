// Plans in virtual time whose streams share the cores of their host.
#include "plan/time/cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/time/bottleneck.h"
#include "support/soak.h"
#include "support/timed_plan.h"

namespace sluice::plan {
namespace {

using ::testing::HasSubstr;

// prepare -> net, on a compute stream each, `first` and `second` cores wide.
Plan stages(int first, int second, double prepare_ns = 10'000, double net_ns = 10'000, const char* op = "shift") {
  PlanBuilder b("stages");
  const int one = b.stream("cpu:0", StreamKind::kCompute, 0), other = b.stream("cpu:0", StreamKind::kCompute, 1);
  const int host = b.stream("cpu:0", StreamKind::kHost);
  const int feed = b.feed("feed", host), prepare = b.actor("prepare", one), net = b.actor("net", other),
            sink = b.sink("sink", host);
  const int x = b.reg("x", feed, {prepare}, {.quota = 4, .bytes = 64});
  const int images = b.reg("images", prepare, {net}, {.quota = 2, .bytes = 64});
  const int y = b.reg("y", net, {sink}, {.quota = 4, .bytes = 64});
  b.run(prepare, op, {b.of_reg(x, {16})}, {b.of_reg(images, {16})}, prepare_ns);
  b.run(net, "net", {b.of_reg(images, {16})}, {b.of_reg(y, {16})}, net_ns);
  Plan plan = b.build();
  plan.streams[one].cores = first;
  plan.streams[other].cores = second;
  return plan;
}

double period(const Plan& plan, int cores) { return simulate(plan, {.steps = 40, .cores = cores}).period_ns; }

TEST(Cores, StreamsThatShareOneTakeTurns) {
  EXPECT_DOUBLE_EQ(period(stages(1, 1), 0), 10'000);  // no limit
  EXPECT_DOUBLE_EQ(period(stages(1, 1), 1), 20'000);
  EXPECT_DOUBLE_EQ(period(stages(1, 1), 2), 10'000);
  EXPECT_DOUBLE_EQ(period(stages(1, 1, 3000, 9000), 1), 12'000);
}

TEST(Cores, AWideKernelRunsAlone) {
  EXPECT_DOUBLE_EQ(period(stages(2, 1), 2), 20'000);
  EXPECT_DOUBLE_EQ(period(stages(2, 1), 3), 10'000);
  EXPECT_DOUBLE_EQ(period(stages(8, 8), 2), 20'000);  // all there are
}

TEST(Cores, FunctionsOfTheProgramAndBriefActorsHoldNone) {
  EXPECT_DOUBLE_EQ(period(stages(1, 1, 10'000, 10'000, "host_function"), 1), 10'000);
  EXPECT_DOUBLE_EQ(period(stages(1, 1, kTinyNs, 10'000), 1), 10'000);
  EXPECT_DOUBLE_EQ(period(stages(1, 1, kTinyNs + 1, 10'000), 1), 10'000 + kTinyNs + 1);
}

// The third in the queue does not pass the second, although its one core is free.
TEST(Cores, AreLentInTheOrderInWhichTheyAreAskedFor) {
  VirtualCores cores(3);
  EXPECT_TRUE(cores.take(0, 2));
  EXPECT_FALSE(cores.take(1, 2));
  EXPECT_FALSE(cores.take(2, 1));
  EXPECT_TRUE(cores.contended());
  const auto served = cores.give(2);
  ASSERT_EQ(served.size(), 2u);
  EXPECT_EQ(served[0].actor, 1);
  EXPECT_EQ(served[1].actor, 2);
  EXPECT_FALSE(cores.contended());
  EXPECT_TRUE(cores.give(2).empty());
  EXPECT_TRUE(cores.give(1).empty());
  EXPECT_TRUE(cores.take(3, 9));  // as many as there are
  EXPECT_FALSE(cores.contended());
}

TEST(Cores, TheCriticalCycleNamesThem) {
  const Plan plan = stages(1, 1);
  const Simulation sim = simulate(plan, {.steps = 40, .cores = 1});
  EXPECT_THAT(critical_str(plan, sim.critical), HasSubstr("-(cores)->"));
  EXPECT_NEAR(sim.stream_busy_ns[0], 40 * 10'000, 1e-6);  // without what it waited for
}

TEST(Cores, QuotasBuyNothingThatCoresForbid) {
  Plan plan = stages(1, 1);
  const std::vector<bool> fixed{true, false, true};
  const QuotaChoice one = fast_quotas(plan, {.fixed = fixed, .cores = 1});
  const QuotaChoice two = fast_quotas(plan, {.fixed = fixed, .cores = 2});
  EXPECT_EQ(one.quotas[1], 1);
  EXPECT_DOUBLE_EQ(one.period_ns, 20'000);
  EXPECT_EQ(two.quotas[1], 2);
  EXPECT_DOUBLE_EQ(two.period_ns, 10'000);
}

TEST(Cores, BottleneckSaysWhatOneMoreGains) {
  const Plan plan = stages(1, 1, 4000, 6000);
  const Bottleneck found = find_bottleneck(plan, {.steps = 40, .cores = 1});
  EXPECT_DOUBLE_EQ(found.now.period_ns, 10'000);
  EXPECT_DOUBLE_EQ(found.core_period_ns, 6000);
  EXPECT_TRUE(found.slots.empty());  // nothing waits for a slot
  EXPECT_EQ(find_bottleneck(plan, {.steps = 40}).core_period_ns, 0);
}

TEST(Cores, TheTargetSaysHowMany) {
  EXPECT_EQ(cores_of_target("cpu:0[cores=4 host] sim:0[cores=1 own async] kernels=3"), 4);
  EXPECT_EQ(cores_of_target("cpu:0[cores=16 host] 1/cpu:0[cores=8 host] kernels=3"), 8);
  EXPECT_EQ(cores_of_target("cpu"), 0);
  EXPECT_EQ(cores_of_target("cpu:0[cores=x"), 0);
}

// Random plans with kernels that hold cores, of streams 1 or 2 wide.
Plan random_plan(uint64_t seed) {
  Plan plan = random_timed_plan(seed);
  std::mt19937_64 random(seed);
  for (Kernel& kernel : plan.kernels) {
    kernel.op = "work";
    kernel.cost_ns *= 1000;
  }
  for (Stream& stream : plan.streams) stream.cores = 1 + static_cast<int>(random() % 2);
  return plan;
}

// What is said of another number of cores is what simulating with it gives; and no more are held than there are.
TEST(SoakCores, AreNeverMoreThanThereAreAndAdviceComesTrue) {
  const int64_t total = test::repetitions(200, 5000);
  int64_t kernels = 0;
  for (int64_t seed = 0; seed < total; ++seed) {
    const Plan plan = random_plan(static_cast<uint64_t>(seed));
    const std::vector<int> held = cores_of_kernels(plan);
    const SimulateOptions limited{.steps = 20, .cores = 1 + static_cast<int>(seed % 3)};
    const Simulation sim = simulate(plan, limited), free = simulate(plan, {.steps = 20});
    EXPECT_EQ(sim.deadlocked, free.deadlocked) << "seed " << seed;
    EXPECT_EQ(sim.firings.size(), free.firings.size()) << "seed " << seed;
    std::vector<std::pair<double, int>> changes;
    for (const SimKernel& k : sim.kernels) {
      const int cores = std::min(std::max(held[k.kernel], 0), limited.cores);
      changes.emplace_back(k.begin_ns, cores);
      changes.emplace_back(k.end_ns, -cores);
      ++kernels;
    }
    std::ranges::sort(changes);  // what ends comes before what begins then
    int now = 0;
    for (const auto& [at, cores] : changes) ASSERT_LE(now += cores, limited.cores) << "seed " << seed << " at " << at;
    if (sim.deadlocked || sim.critical.empty()) continue;
    const double more = find_bottleneck(plan, limited).core_period_ns;
    EXPECT_DOUBLE_EQ(more,
                     period(plan, 0) > 0 ? simulate(plan, {.steps = 20, .cores = limited.cores + 1}).period_ns : 0);
  }
  test::report_count("cores in virtual time: kernels", kernels, "kernels");
}

}  // namespace
}  // namespace sluice::plan
