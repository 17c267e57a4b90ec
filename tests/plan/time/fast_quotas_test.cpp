// Quotas that make a plan fast: against every other choice, for plans small enough to try them all.
#include "plan/time/fast_quotas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "plan/verify.h"
#include "plan/verify/quota.h"
#include "support/soak.h"
#include "support/timed_plan.h"
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

// Periods, where many slots take long to fill: what lasts counts.
constexpr int kLong = 2048;

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

// None: a cycle that no quotas help.
std::vector<int> least_quotas(const Plan& plan) {
  try {
    return minimal_quotas(plan, none_fixed(plan));
  } catch (const Error&) {
    return {};
  }
}

TEST(FastQuotas, TheCurveLeadsFromTheLeastBytesToTheShortestPeriod) {
  const Plan plan = two_stage_plan({.quota = 1, .host_ns = 1000, .compute_ns = 1000});
  const std::vector<QuotaChoice> curve = quota_curve(plan, {.fixed = none_fixed(plan)});
  ASSERT_EQ(curve.size(), 2u);
  EXPECT_EQ(curve[0].quotas, least_quotas(plan));
  EXPECT_DOUBLE_EQ(curve[0].period_ns, 1500);
  EXPECT_EQ(curve[1].bytes - curve[0].bytes, 64u);
  EXPECT_DOUBLE_EQ(curve[1].period_ns, 1000);
  const Plan busy = two_stage_plan({.quota = 1, .host_ns = 0, .compute_ns = 1000});
  EXPECT_EQ(quota_curve(busy, {.fixed = none_fixed(busy)}).size(), 1u);
  const Plan free = two_stage_plan({.quota = 1, .host_ns = 0, .compute_ns = 0});
  EXPECT_EQ(quota_curve(free, {.fixed = none_fixed(free)}).size(), 1u);
}

// Plans with an actor that fires twice in a step, whose pace shows between every other of its firings.
TEST(FastQuotas, ActorsThatFireSeveralTimesAStepArePacedByWholeSteps) {
  const Plan plan = random_timed_plan(3096);  // stages of 4 and 6 ns
  EXPECT_DOUBLE_EQ(period_with(plan, {1, 1, 2, 1}), 8);
  EXPECT_DOUBLE_EQ(period_with(plan, {1, 2, 3, 1}), 7);
  EXPECT_DOUBLE_EQ(fast_quotas(plan, {.fixed = none_fixed(plan)}).period_ns, 6);
  const Plan tied = random_timed_plan(4273);  // where the critical cycle does not show which slot is missing
  const QuotaChoice choice = fast_quotas(tied, {.fixed = none_fixed(tied)});
  EXPECT_EQ(choice.quotas, (std::vector<int>{1, 1, 2, 1, 1}));
  EXPECT_DOUBLE_EQ(choice.period_ns, 9);
}

TEST(SoakFastQuotas, CurvesRiseFromTheLeastToTheFastest) {
  const int64_t total = test::repetitions(300, 3000);
  int64_t plans = 0, points = 0;
  for (uint64_t seed = 0; plans < total; ++seed) {
    const Plan plan = random_timed_plan(seed);
    if (least_quotas(plan).empty()) continue;
    ++plans;
    const std::vector<QuotaChoice> curve = quota_curve(plan, {.fixed = none_fixed(plan)});
    const QuotaChoice fastest = fast_quotas(plan, {.fixed = none_fixed(plan)});
    points += static_cast<int64_t>(curve.size());
    ASSERT_FALSE(curve.empty());
    ASSERT_LE(curve.size(), 26u);
    EXPECT_EQ(curve.front().bytes, fastest.least_bytes) << "plan " << seed;
    EXPECT_LE(curve.back().period_ns * 0.998, fastest.period_ns) << "plan " << seed;
    for (size_t i = 0; i < curve.size(); ++i) {
      const QuotaChoice& at = curve[i];
      EXPECT_EQ(at.bytes, slot_bytes(plan, slot_groups(plan), at.quotas)) << "plan " << seed;
      if (i == 0) continue;
      EXPECT_GT(at.bytes, curve[i - 1].bytes) << "plan " << seed;
      EXPECT_LT(at.period_ns, curve[i - 1].period_ns * 0.998) << "plan " << seed;
    }
  }
  test::report_count("timed plans", points, "points of their curves");
}

// C-05: as fast as eight slots everywhere, in half of their bytes; but for a few that cannot be.
TEST(SoakFastQuotas, AreAsFastAsEightSlotsEachInHalfOfTheBytes) {
  const int64_t total = test::repetitions(1000, 20000);
  int64_t plans = 0, larger = 0;
  double slowest = 1, largest = 0;
  for (uint64_t seed = 0; plans < total; ++seed) {
    const Plan plan = random_timed_plan(seed);
    std::vector<int> eight = least_quotas(plan);
    if (eight.empty()) continue;
    ++plans;
    for (int& quota : eight) quota = std::max(quota, 8);
    const QuotaChoice choice = fast_quotas(plan, {.fixed = none_fixed(plan)});
    const auto share_of = [&](int periods) {
      return choice.period_ns > 0 ? period_with(plan, eight, periods) / period_with(plan, choice.quotas, periods) : 1;
    };
    double share = share_of(128);
    if (share < 0.98) share = share_of(kLong);
    const uint64_t bytes = slot_bytes(plan, slot_groups(plan), eight);
    slowest = std::min(slowest, share);
    EXPECT_GE(share, 0.98) << "plan " << seed << ": " << ::testing::PrintToString(choice.quotas);
    if (bytes == 0) continue;
    uint64_t needed = choice.bytes;
    if (needed > bytes / 2) {  // more than eight slots are faster still: those that are as fast as eight
      for (const QuotaChoice& point : quota_curve(plan, {.fixed = none_fixed(plan)})) {
        if (period_with(plan, point.quotas, kLong) * 0.98 <= period_with(plan, eight, kLong))
          needed = std::min(needed, point.bytes);
      }
    }
    largest = std::max(largest, static_cast<double>(needed) / static_cast<double>(bytes));
    larger += needed > bytes / 2;
  }
  test::report_count("timed plans", static_cast<int64_t>(slowest * 1000),
                     "per mille of the speed of eight slots, at least");
  test::report_count("timed plans", static_cast<int64_t>(largest * 1000),
                     "per mille of the bytes of eight slots, at most");
  test::report_count("timed plans", larger, "that need more than half of the bytes of eight slots");
  EXPECT_LE(larger, plans / 1000);
}

TEST(SoakFastQuotas, NoOtherChoiceOfTheSameBytesIsFaster) {
  const int64_t total = test::repetitions(1000, 20000);
  int64_t compared = 0, grown = 0, plans = 0;
  for (uint64_t seed = 0; plans < total; ++seed) {
    const Plan plan = random_timed_plan(seed);
    const std::vector<int> least = least_quotas(plan);
    if (least.empty()) continue;
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
