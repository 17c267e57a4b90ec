// Plans that verify() accepts never block, end in every order, and compute the same; plans it refuses do block.
#include <gtest/gtest.h>

#include "explorer/generator.h"
#include "explorer/judge.h"

namespace sluice::explorer {
namespace {

TEST(SoakExplorer, SmallPlansInEveryOrder) {
  const int64_t n = test::repetitions(400, Systematic::count());
  Tally tally;
  test::Progress progress("systematic plans", n);
  for (int64_t i = 0; i < n; ++i) {
    // A stride without common factors with the count visits all kinds when only some are visited.
    const int64_t index = i * 4'099 % Systematic::count();
    const std::string fault = disagreement(Systematic::plan(index), {.states = 5'000}, tally);
    ASSERT_EQ(fault, "") << "systematic plan " << index;
    progress.step();
  }
  tally.report("explorer, small plans");
  EXPECT_GT(tally.accepted, n / 8);
  EXPECT_GT(tally.refused, n / 40);
}

TEST(SoakExplorer, RandomPlansInEveryOrder) {
  const int64_t n = test::repetitions(1'000, 100'000);
  Tally tally;
  test::Progress progress("random plans", n);
  for (int64_t i = 0; i < n; ++i) {
    const std::string fault =
        disagreement(random_plan(static_cast<uint64_t>(i)), {.states = 3'000}, tally, static_cast<uint64_t>(i));
    ASSERT_EQ(fault, "") << "seed " << i;
    progress.step();
  }
  tally.report("explorer, random plans");
  EXPECT_GT(tally.accepted, n / 4);
  EXPECT_GT(tally.refused, n / 20);
}

}  // namespace
}  // namespace sluice::explorer
