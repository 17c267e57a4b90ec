// Streams of different rates, joined by their timestamps (include/sluice/join.h).
#include "include/sluice/join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "support/soak.h"

namespace sluice::api {
namespace {

using IntJoin = Join<int>;

std::string str(const IntJoin::Set& set) {
  std::string text = std::to_string(set.timestamp) + ":";
  for (const std::optional<int>& packet : set.packets)
    text += " " + (packet ? std::to_string(*packet) : std::string("-"));
  return text;
}
std::vector<std::string> all(IntJoin& join) {
  std::vector<std::string> sets;
  while (std::optional<IntJoin::Set> set = join.next()) sets.push_back(str(*set));
  return sets;
}

TEST(Join, StreamsOfDifferentRatesAreJoinedByTime) {
  IntJoin join(2);
  for (int i = 0; i < 6; ++i) join.add(0, 10 * i, i);
  EXPECT_THAT(all(join), ::testing::IsEmpty()) << "the other stream may have a packet at 0";
  join.add(1, 0, 100);
  join.add(1, 30, 101);
  EXPECT_THAT(all(join), ::testing::ElementsAre("0: 0 100", "10: 1 -", "20: 2 -", "30: 3 101"));
  join.bound(1, 45);
  EXPECT_THAT(all(join), ::testing::ElementsAre("40: 4 -"));
  join.end(1);
  EXPECT_THAT(all(join), ::testing::ElementsAre("50: 5 -"));
  EXPECT_FALSE(join.ended());
  join.end(0);
  EXPECT_TRUE(join.ended());
}

TEST(Join, ImmediateGivesEachPacketAsItComes) {
  IntJoin join(3, {.policy = IntJoin::Policy::kImmediate});
  join.add(2, 50, 1);
  join.add(0, 10, 2);
  join.add(2, 60, 3);
  EXPECT_THAT(all(join), ::testing::ElementsAre("50: - - 1", "10: 2 - -", "60: - - 3"));
  EXPECT_FALSE(join.next());
}

TEST(Join, OfAFixedSizeTheNewestStay) {
  IntJoin join(2, {.newest = 3});
  for (int i = 0; i < 10; ++i) join.add(0, i, i);
  EXPECT_EQ(join.waiting(0), 3u);
  EXPECT_EQ(join.dropped(0), 7u);
  EXPECT_EQ(join.dropped(1), 0u);
  join.bound(1, 100);
  EXPECT_THAT(all(join), ::testing::ElementsAre("7: 7 -", "8: 8 -", "9: 9 -"));
  IntJoin immediate(1, {.policy = IntJoin::Policy::kImmediate, .newest = 2});
  for (int i = 0; i < 5; ++i) immediate.add(0, i, i);
  EXPECT_THAT(all(immediate), ::testing::ElementsAre("3: 3", "4: 4"));
}

TEST(Join, WhatIsWrongIsRefusedAndLosesNothing) {
  const auto told = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(told([] { IntJoin none(0); }), "join: of 0 streams; must be 1 or more");
  IntJoin join(2);
  join.add(0, 5, 1);
  EXPECT_EQ(told([&] { join.add(0, 5, 2); }), "join: stream 0: a packet at 5; must be at 6 or later");
  EXPECT_EQ(told([&] { join.add(2, 5, 2); }), "join: add: stream 2 of 2; there is none");
  join.end(1);
  EXPECT_EQ(told([&] { join.add(1, 7, 2); }), "join: stream 1: a packet at 7; the stream is at its end");
  EXPECT_THAT(all(join), ::testing::ElementsAre("5: 1 -"));
}

// The sets are the same whichever stream is faster, and whenever they are asked for.
TEST(SoakJoin, SetsDependOnThePacketsAlone) {
  const int64_t total = test::repetitions(300, 20'000);
  int64_t sets = 0;
  for (int64_t seed = 0; seed < total; ++seed) {
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    const size_t streams = 1 + random() % 4;
    std::vector<std::vector<int64_t>> times(streams);
    for (std::vector<int64_t>& own : times) {
      int64_t at = 0;
      for (uint64_t i = random() % 12; i > 0; --i) own.push_back(at += 1 + static_cast<int64_t>(random() % 5));
    }
    std::vector<std::string> first;
    for (int round = 0; round < 4; ++round) {
      IntJoin join(streams);
      std::vector<size_t> given(streams, 0);
      std::vector<std::string> found;
      while (!join.ended()) {
        const size_t s = random() % streams;
        if (given[s] < times[s].size()) {
          if (random() % 3 == 0) join.bound(s, times[s][given[s]]);
          join.add(s, times[s][given[s]], static_cast<int>(given[s]));
          ++given[s];
        } else {
          join.end(s);
        }
        if (random() % 2 == 0)
          for (std::string& set : all(join)) found.push_back(std::move(set));
      }
      sets += static_cast<int64_t>(found.size());
      if (round == 0) first = found;
      ASSERT_EQ(found, first) << "seed " << seed;
    }
  }
  test::report_count("joins", sets, "sets");
}

}  // namespace
}  // namespace sluice::api
