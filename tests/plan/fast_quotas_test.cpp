// Quotas that make a plan fast: against every other choice, for plans small enough to try them all.
#include "plan/fast_quotas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "plan/quota.h"
#include "plan/verify.h"
#include "support/plan_builder.h"
#include "support/soak.h"
#include "support/two_stage_plan.h"

namespace sluice::plan {
namespace {

using ::testing::HasSubstr;

std::vector<bool> none_fixed(const Plan& plan) { return std::vector<bool>(plan.registers.size()); }

int register_of(const Plan& plan, const std::string& name) {
  for (size_t r = 0; r < plan.registers.size(); ++r) {
    if (plan.registers[r].name == name) return static_cast<int>(r);
  }
  return -1;
}

double period_with(Plan plan, const std::vector<int>& quotas, int periods = 128) {
  for (size_t r = 0; r < quotas.size(); ++r) plan.registers[r].quota = quotas[r];
  const Simulation simulation = simulate(plan, {.steps = periods * steps_of_period(plan, repetition_vector(plan))});
  return simulation.deadlocked ? 1e30 : simulation.period_ns;
}

TEST(FastQuotas, BalancedStagesGetTwoSlots) {
  const Plan plan = two_stage_plan({.quota = 1, .host_ns = 1000, .compute_ns = 1000});
  const QuotaChoice choice = fast_quotas(plan, {.fixed = none_fixed(plan)});
  EXPECT_EQ(choice.quotas[register_of(plan, "images")], 2);
  EXPECT_DOUBLE_EQ(choice.least_period_ns, 1500);  // a slot is free again half through the net
  EXPECT_DOUBLE_EQ(choice.period_ns, 1000);
  EXPECT_EQ(choice.bytes - choice.least_bytes, 64u);
  EXPECT_THAT(choice.str(plan), HasSubstr("64 bytes more than the least: 1 us a step instead of 1.5; limited by"));
}

TEST(FastQuotas, WhereAStreamIsAlwaysBusyTheLeastAreKept) {
  const Plan plan = two_stage_plan({.quota = 1, .host_ns = 0, .compute_ns = 1000});
  const QuotaChoice choice = fast_quotas(plan, {.fixed = none_fixed(plan)});
  EXPECT_EQ(choice.quotas, minimal_quotas(plan, none_fixed(plan)));
  EXPECT_EQ(choice.bytes, choice.least_bytes);
  EXPECT_THAT(choice.str(plan), HasSubstr("the least: 1 us a step"));
}

TEST(FastQuotas, WithoutCostsTheLeastAreKept) {
  const Plan plan = two_stage_plan({.quota = 1, .host_ns = 0, .compute_ns = 0});
  const QuotaChoice choice = fast_quotas(plan, {.fixed = none_fixed(plan)});
  EXPECT_EQ(choice.quotas, minimal_quotas(plan, none_fixed(plan)));
  EXPECT_THAT(choice.str(plan), HasSubstr("nothing says how long anything takes"));
}

TEST(FastQuotas, FixedOnesAndTheBudgetAreKept) {
  const Plan plan = two_stage_plan({.quota = 1});
  std::vector<bool> fixed = none_fixed(plan);
  fixed[register_of(plan, "images")] = true;
  EXPECT_EQ(fast_quotas(plan, {.fixed = fixed}).quotas[register_of(plan, "images")], 1);
  const QuotaChoice least = fast_quotas(plan, {.fixed = none_fixed(plan), .spare = 63});
  EXPECT_EQ(least.quotas, minimal_quotas(plan, none_fixed(plan)));
  const QuotaChoice enough = fast_quotas(plan, {.fixed = none_fixed(plan), .spare = 64});
  EXPECT_EQ(enough.quotas[register_of(plan, "images")], 2);
}

TEST(FastQuotas, OneMoreSlotIsToldByWhatItWouldGain) {
  const Plan plan = two_stage_plan({.quota = 1});
  const SimulateOptions options{.steps = 16};
  const std::vector<SlotGain> gains = slot_gains(plan, simulate(plan, options), options);
  ASSERT_EQ(gains.size(), 1u);
  EXPECT_EQ(plan.registers[gains[0].reg].name, "images");
  EXPECT_EQ(gains[0].bytes, 64u);
  EXPECT_DOUBLE_EQ(gains[0].period_ns, 1000);
}

// Two to five actors behind a feed on up to three streams, costs from 0 to 9, some rates, some feedback.
Plan random_timed_plan(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  PlanBuilder b("timed");
  const int streams = 2 + below(2);
  for (int s = 0; s < streams; ++s) b.stream("cpu:0", StreamKind::kCompute, s);
  std::vector<int> actors{b.feed("feed", below(streams))};
  const int n = 2 + below(3);
  for (int i = 0; i < n; ++i) actors.push_back(b.actor("a" + std::to_string(i), below(streams)));
  actors.push_back(b.sink("sink", below(streams)));
  std::vector<int> rate(actors.size(), 1);  // firings per step
  for (size_t i = 1; i + 1 < actors.size(); ++i) rate[i] = below(4) == 0 ? 2 : 1;
  int registers = 0;
  const auto join = [&](size_t from, size_t to, int initial) {
    const int emit_every = rate[from] > rate[to] && below(2) ? rate[from] : 1;
    const int made = rate[from] / emit_every;  // per step
    const int take = std::max(1, made / rate[to]), hold = std::max(1, rate[to] / made);
    const int r = b.reg("r" + std::to_string(registers++), actors[from], {},
                        {.quota = std::max(1, take + initial),
                         .bytes = 64u * static_cast<unsigned>(below(4)),
                         .emit_every = emit_every,
                         .initial_tokens = initial * take});
    b.edge(r, actors[to], take, hold);
  };
  for (size_t i = 1; i < actors.size(); ++i)
    join(below(3) == 0 ? static_cast<size_t>(below(static_cast<int>(i))) : i - 1, i, 0);
  if (below(3) == 0) {
    const auto to = static_cast<size_t>(below(static_cast<int>(actors.size()) - 1));
    join(actors.size() - 1, to, 1 + below(2));
  }
  // A feed that fires once a step alone starts an actor that fires twice: by holding its token.
  for (size_t i = 1; i + 1 < actors.size(); ++i) b.run(actors[i], "work", {}, {}, below(10));
  return b.build(false);
}

TEST(SoakFastQuotas, NoOtherChoiceOfTheSameBytesIsFaster) {
  const int64_t total = test::repetitions(1000, 20000);
  int64_t compared = 0, grown = 0, plans = 0;
  for (uint64_t seed = 0; plans < total; ++seed) {
    const Plan plan = random_timed_plan(seed);
    std::vector<int> least;
    try {
      least = minimal_quotas(plan, none_fixed(plan));
    } catch (const Error&) {
      continue;  // a cycle that no quotas help
    }
    ++plans;
    const std::vector<int> groups = slot_groups(plan);
    const QuotaChoice choice = fast_quotas(plan, {.fixed = none_fixed(plan)});
    grown += choice.bytes > choice.least_bytes;
    ASSERT_LE(choice.period_ns, choice.least_period_ns * 1.002) << "plan " << seed;
    // Every vector from the least to three more.
    std::vector<int> quotas = least;
    const std::function<void(size_t)> all = [&](size_t r) {
      if (r == quotas.size()) {
        if (slot_bytes(plan, groups, quotas) > choice.bytes) return;
        ++compared;
        if (period_with(plan, quotas) >= choice.period_ns * 0.99) return;
        // Many slots may take longer to fill than that: what lasts counts.
        constexpr int kLong = 2048;
        EXPECT_GE(period_with(plan, quotas, kLong), period_with(plan, choice.quotas, kLong) * 0.99)
            << "plan " << seed << ": " << ::testing::PrintToString(quotas) << " against "
            << ::testing::PrintToString(choice.quotas);
        return;
      }
      const int most = quotas.size() <= 5 ? 3 : 2;
      for (int more = 0; more <= most && !::testing::Test::HasFailure(); ++more, ++quotas[r]) all(r + 1);
      quotas[r] = least[r];
    };
    all(0);
    if (::testing::Test::HasFailure()) return;
  }
  test::report_count("timed plans", plans, "plans");
  test::report_count("timed plans", compared, "other choices, none faster by more than 1 %");
  EXPECT_GT(grown, plans / 10);
}

}  // namespace
}  // namespace sluice::plan
