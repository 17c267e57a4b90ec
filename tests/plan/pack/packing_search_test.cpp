#include "plan/pack/packing_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace sluice::plan {
namespace {

// A rectangle of time and bytes, cut into n pieces: they fit without a gap, which greedy orders do not find.
std::vector<Interval> pieces(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::pair<Interval, uint64_t>> cut{
      {{0, 1000, 100'000}, 0}};  // with the lowest byte, which nobody is told
  const auto area = [&](size_t i) {
    return static_cast<double>(cut[i].first.end - cut[i].first.begin) * static_cast<double>(cut[i].first.bytes);
  };
  while (cut.size() < n) {
    size_t k = random() % cut.size();
    for (int others = 0; others < 3; ++others) {  // the large ones more often
      const size_t other = random() % cut.size();
      if (area(other) > area(k)) k = other;
    }
    auto left = cut[k], right = cut[k];
    if (random() % 2 == 0) {
      const int64_t life = left.first.end - left.first.begin;
      if (life < 2) continue;
      left.first.end = right.first.begin = left.first.begin + 1 + static_cast<int64_t>(random() % (life - 1));
    } else {
      if (left.first.bytes < 2) continue;
      left.first.bytes = 1 + random() % (left.first.bytes - 1);
      right.first.bytes -= left.first.bytes;
      right.second += left.first.bytes;
    }
    cut[k] = left;
    cut.push_back(right);
  }
  std::vector<Interval> intervals;
  for (const auto& [interval, offset] : cut) intervals.push_back(interval);
  std::shuffle(intervals.begin(), intervals.end(), random);
  for (Interval& v : intervals) v.bytes *= kAlignment;
  return intervals;
}

TEST(PackingSearch, FindsWhatFitsExactly) {
  int gaps = 0;
  for (const size_t n : {50, 100, 200, 300}) {
    for (unsigned seed = 0; seed < 6; ++seed) {
      const std::vector<Interval> intervals = pieces(n, seed);
      const Packing greedy = pack(intervals), found = search_packing(intervals);
      gaps += greedy.bytes > greedy.lower_bound;
      EXPECT_EQ(packing_fault(intervals, found), "");
      EXPECT_EQ(found.bytes, found.lower_bound) << n << " pieces, seed " << seed;
    }
  }
  EXPECT_GT(gaps, 20) << "of 24 that greedy orders leave";
}

TEST(PackingSearch, IsNeverWorseThanGreedyOrdersAndTheSameEachTime) {
  int smaller = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::vector<Interval> intervals(1 + random() % 80);
    for (Interval& v : intervals) {
      v.begin = random() % 60;
      v.end = v.begin + random() % 14;
      v.bytes = random() % 4096;
    }
    constexpr uint64_t kSteps = 4'000'000;
    const Packing greedy = pack(intervals), found = search_packing(intervals, kSteps);
    ASSERT_EQ(packing_fault(intervals, found), "") << seed;
    EXPECT_LE(found.bytes, greedy.bytes);
    EXPECT_EQ(found.offsets, search_packing(intervals, kSteps).offsets);
    smaller += found.bytes < greedy.bytes;
  }
  EXPECT_GT(smaller, 50);
}

TEST(PackingSearch, ManyIntervalsKeepTheStackSmall) {
  for (const size_t n : {2000, 2001}) {  // the most that are searched, and one more
    const std::vector<Interval> intervals = pieces(n, 0);
    const Packing found = search_packing(intervals, 50'000'000);
    EXPECT_EQ(packing_fault(intervals, found), "");
    EXPECT_LE(found.bytes, pack(intervals).bytes);
  }
}

TEST(PackingSearch, WithoutStepsIsTheBestGreedyOrder) {
  const std::vector<Interval> intervals = pieces(100, 1);
  const Packing greedy = pack(intervals, kAlignment, true), found = search_packing(intervals, 1);
  EXPECT_EQ(found.offsets, greedy.offsets);
  ASSERT_EQ(greedy.tries.size(), 7u);
  for (const Packing::Try& t : greedy.tries) EXPECT_GE(t.bytes, greedy.bytes) << t.way;
  EXPECT_EQ(search_packing({}).bytes, 0u);
}

}  // namespace
}  // namespace sluice::plan
