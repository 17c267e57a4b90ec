#include "plan/pack/packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "base/error.h"

namespace sluice::plan {
namespace {

TEST(Packing, ReusesBytesOfTheDead) {
  const std::vector<Interval> intervals{{0, 2, 100}, {1, 3, 64}, {2, 4, 128}};
  const Packing packing = pack(intervals);
  EXPECT_EQ(packing_fault(intervals, packing), "");
  EXPECT_EQ(packing.lower_bound, 192u);
  EXPECT_EQ(packing.bytes, 192u);
}

TEST(Packing, EmptyAndDegenerate) {
  EXPECT_EQ(pack({}).bytes, 0u);
  const std::vector<Interval> intervals{{3, 3, 100}, {1, 5, 0}};
  EXPECT_EQ(pack(intervals).bytes, 0u);
  EXPECT_EQ(packing_fault(intervals, pack(intervals)), "");
  EXPECT_THROW(pack(std::vector<Interval>{{5, 1, 8}}), Error);
  EXPECT_THROW(pack(std::vector<Interval>{{0, 1, ~0ull}}), Error);
  EXPECT_THROW(pack(std::vector<Interval>{{0, 1, ~0ull / 2}, {0, 1, ~0ull / 2 + 1}}), Error);
}

TEST(Packing, TheValidatorFindsEveryFault) {
  const std::vector<Interval> intervals{{0, 4, 64}, {2, 6, 64}, {4, 8, 64}};
  EXPECT_EQ(packing_fault(intervals,
                          {
                              {0, 64, 0},
                              128,
                              128,
                          }),
            "");
  EXPECT_THAT(packing_fault(intervals, {{0, 0, 64}, 128, 128}), ::testing::HasSubstr("intervals 0 and 1 overlap"));
  EXPECT_THAT(packing_fault(intervals, {{0, 64, 32}, 128, 128}), ::testing::HasSubstr("not a multiple"));
  EXPECT_THAT(packing_fault(intervals, {{0, 64, 128}, 128, 128}), ::testing::HasSubstr("leave the arena"));
  EXPECT_THAT(packing_fault(intervals, {{0, 64, 0}, 128, 64}), ::testing::HasSubstr("lower bound"));
  EXPECT_THAT(packing_fault(intervals, {{0, 64}, 128, 128}), ::testing::HasSubstr("2 offsets for 3"));
}

TEST(Packing, RandomIntervalsAreRightAndClose) {
  double worst = 1;
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    std::vector<Interval> intervals(1 + random() % 60);
    for (Interval& v : intervals) {
      v.begin = random() % 50;
      v.end = v.begin + 1 + random() % 12;
      v.bytes = 1 + random() % 4096;
    }
    const Packing packing = pack(intervals);
    ASSERT_EQ(packing_fault(intervals, packing), "") << seed;
    worst = std::max(worst, static_cast<double>(packing.bytes) / packing.lower_bound);
    EXPECT_EQ(packing.offsets, pack(intervals).offsets);
  }
  EXPECT_LT(worst, 1.35);
}

TEST(Packing, TrainingShapedLivesReachTheLowerBound) {
  // Activations live from forward to backward; gradients live for two kernels.
  std::vector<Interval> intervals;
  constexpr int kLayers = 8000;
  for (int i = 0; i < kLayers; ++i) {
    intervals.push_back({i, 2 * kLayers - i, 256u * (1 + i % 5)});
    intervals.push_back({2 * kLayers - i - 1, 2 * kLayers - i + 1, 256u * (1 + i % 5)});
  }
  const auto begin = std::chrono::steady_clock::now();
  const Packing packing = pack(intervals);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_EQ(packing_fault(intervals, packing), "");
  EXPECT_LE(packing.bytes, packing.lower_bound + 4096);
  EXPECT_LT(seconds, 30) << "16,000 intervals must not take quadratic time";
  RecordProperty("seconds", std::to_string(seconds));
}

}  // namespace
}  // namespace sluice::plan
