// Random plans in random orders of messages, on the real streams: none stalls, and every one gives the bits of its
// sequential reading.
#include "faults/machine.h"
#include "plan/json/json.h"
#include "support/soak.h"

namespace sluice::test {
namespace {

constexpr int kOrders = 10;
constexpr uint64_t kSteps = 6;

// Most plans are small; one in eight is on a device too, one in fifty large.
RandomPlanOptions kind_of(uint64_t seed) {
  RandomPlanOptions options;
  options.dangling = seed % 3 == 0;
  options.branches = seed % 2 == 0;
  if (seed % 50 == 0) {
    options.min_actors = 30;
    options.max_actors = 200;
  } else if (seed % 8 == 0) {
    options.device = true;
    options.max_actors = 12;
  } else {
    options.max_actors = 20;
  }
  return options;
}

// Whether some actor writes a register and then reads the token of it that it has taken.
bool reads_what_it_feeds_back(const Plan& plan) {
  for (const Edge& edge : plan.edges) {
    const Register& reg = plan.registers[edge.reg];
    if (reg.producer != edge.consumer || reg.bytes == 0) continue;
    bool written = false;
    for (const Instr& instr : plan.actors[reg.producer].program) {
      if (instr.kind != InstrKind::kRun) continue;
      const Kernel& kernel = plan.kernels[instr.index];
      const auto has = [&](const std::vector<View>& views) {
        return std::any_of(views.begin(), views.end(),
                           [&](const View& v) { return v.base == BaseKind::kRegister && v.index == edge.reg; });
      };
      if (written && has(kernel.inputs)) return true;
      written |= has(kernel.outputs);
    }
  }
  return false;
}

TEST(RandomPlan, VerifiesAndReplays) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const Plan plan = random_plan(seed, kind_of(seed));
    ASSERT_EQ(verify(plan).str(), "") << "seed " << seed;
    ASSERT_EQ(to_json(plan), to_json(random_plan(seed, kind_of(seed)))) << "seed " << seed;
  }
}

TEST(RandomPlan, ManyReadATokenOfARegisterThatTheyHaveWritten) {
  int plans = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) plans += reads_what_it_feeds_back(random_plan(seed, kind_of(seed)));
  EXPECT_GE(plans, 20);
}

// Branches are of use as a test where some steps have results, some none, and many kernels are left out.
TEST(RandomPlan, ManyBranch) {
  int branching = 0, with_results = 0, void_results = 0;
  for (uint64_t seed = 2; seed <= 200; seed += 2) {
    const Plan plan = random_plan(seed, kind_of(seed));
    if (std::none_of(plan.kernels.begin(), plan.kernels.end(), [](const Kernel& k) { return k.op == "case"; }))
      continue;
    ++branching;
    const Expected expected = expected_of(plan, mixes(), random_inputs(plan, 2 * period_of(plan), seed));
    for (const bool fails : expected.fails) ++(fails ? void_results : with_results);
  }
  EXPECT_GE(branching, 60);
  EXPECT_GE(with_results, 100);
  EXPECT_GE(void_results, 20);
}

// The same on threads, where the order is the machine's.
TEST(SoakRandomPlans, ThreadsGiveTheSequentialBits) {
  const int64_t plans = repetitions(60, 5000);
  Engine engine({.cores = 2});
  for (int64_t p = 1; p <= plans; ++p) {
    const auto seed = static_cast<uint64_t>(p);
    const Plan plan = random_plan(seed, kind_of(seed));
    const uint64_t period = period_of(plan);
    const Inputs inputs = random_inputs(plan, (kSteps + period - 1) / period * period, seed);
    const Expected expected = expected_of(plan, mixes(), inputs);
    ASSERT_EQ(difference(plan, run_on(engine, plan, mixes(), inputs), expected), "") << "plan " << seed;
  }
  report_count("random plans", plans, "plans on threads");
}

TEST(SoakRandomPlans, EveryOrderGivesTheSequentialBits) {
  const int64_t plans = repetitions(300, 100000);
  Machine machine;
  Progress progress("random plans", plans);
  int64_t orders = 0, actors = 0, firings = 0, messages = 0;
  for (int64_t p = 1; p <= plans; ++p) {
    const auto seed = static_cast<uint64_t>(p);
    const Plan plan = random_plan(seed, kind_of(seed));
    const uint64_t period = period_of(plan);
    const Inputs inputs = random_inputs(plan, (kSteps + period - 1) / period * period, seed);
    const Expected expected = expected_of(plan, mixes(), inputs);
    for (int order = 0; order < kOrders; ++order) {
      // Half of them as streams with threads have it: tokens of a stream are counted at once.
      machine.probe.every_token = machine.probe.check = order % 2 == 0;
      machine.probe.arm(actors::MessageFault::kNone, actors::ItemKind::kReady, 0);
      const RunResult got = machine.run(plan, mixes(), inputs, seed * 1000 + static_cast<uint64_t>(order));
      ASSERT_EQ(difference(plan, got, expected), "") << "plan " << seed << ", order " << order;
      ASSERT_THAT(machine.probe.breaches, ::testing::IsEmpty()) << "plan " << seed << ", order " << order;
      ++orders;
      messages += static_cast<int64_t>(machine.probe.delivered);
      for (const uint64_t n : got.firings) firings += static_cast<int64_t>(n);
    }
    actors += static_cast<int64_t>(plan.actors.size());
    progress.step();
  }
  report_count("random plans", plans, "plans");
  report_count("random plans", orders, "orders, each with the sequential bits");
  report_count("random plans", actors, "actors");
  report_count("random plans", firings, "firings");
  report_count("random plans", messages, "messages");
}

}  // namespace
}  // namespace sluice::test
