// Conditions under which sources start (include/sluice/conditions.h), by a clock of the test and by the machine's.
#include "include/sluice/conditions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>
#include <vector>

namespace sluice::api {
namespace {

using std::chrono::milliseconds;
using Ns = Conditions::Nanoseconds;
using Kind = Conditions::Next::Kind;

// Starts at each time at which the conditions hold, in virtual time; each start takes `busy`. Ends after `most` starts,
// or when it would have to be called.
std::vector<int64_t> starts_ms(Conditions& when, Ns busy, int most, Ns now = Ns(0)) {
  std::vector<int64_t> starts;
  while (static_cast<int>(starts.size()) < most) {
    const Conditions::Next next = when.at(now);
    if (next.kind == Kind::kAt) {
      EXPECT_GT(next.at, now);
      EXPECT_FALSE(when.take(now));
      now = next.at;
    } else if (next.kind == Kind::kNow) {
      EXPECT_TRUE(when.take(now));
      starts.push_back(std::chrono::duration_cast<milliseconds>(now).count());
      now += busy;
    } else {
      break;
    }
  }
  return starts;
}

TEST(Conditions, APeriodHasATickAtOnceAndNoDrift) {
  Conditions when;
  when.periodic(milliseconds(10));
  const std::vector<int64_t> starts = starts_ms(when, milliseconds(3), 1000, milliseconds(7));
  ASSERT_EQ(starts.size(), 1000u);
  for (size_t i = 0; i < starts.size(); ++i) ASSERT_EQ(starts[i], 7 + 10 * static_cast<int64_t>(i));
}

TEST(Conditions, ASourceThatIsLateDoesNotHurry) {
  Conditions when;
  when.periodic(milliseconds(10));
  EXPECT_THAT(starts_ms(when, milliseconds(25), 5), ::testing::ElementsAre(0, 25, 50, 75, 100));
}

TEST(Conditions, ACountStops) {
  Conditions when;
  when.periodic(milliseconds(10)).count(100);
  EXPECT_EQ(starts_ms(when, milliseconds(1), 1000).back(), 990);
  EXPECT_EQ(when.starts(), 100);
  EXPECT_EQ(when.at(milliseconds(5000)).kind, Kind::kNever);
  EXPECT_FALSE(when.wait());
}

TEST(Conditions, ASwitchLetsTicksThroughWhileItIsOn) {
  Conditions when;
  when.periodic(milliseconds(10)).switched(true);
  EXPECT_THAT(starts_ms(when, Ns(0), 3), ::testing::ElementsAre(0, 10, 20));
  when.set(false);
  EXPECT_EQ(when.at(milliseconds(40)).kind, Kind::kOnCall);
  when.set(true);
  // The tick of 30 waits, and those of 40 and 50 are lost.
  EXPECT_THAT(starts_ms(when, Ns(0), 3, milliseconds(55)), ::testing::ElementsAre(55, 60, 70));
}

TEST(Conditions, EachCompletionIsOneStart) {
  Conditions when;
  when.asynchronous();
  EXPECT_EQ(when.at(Ns(0)).kind, Kind::kOnCall);
  when.complete();
  when.complete();
  EXPECT_THAT(starts_ms(when, milliseconds(1), 5), ::testing::ElementsAre(0, 1));
  EXPECT_EQ(when.at(Ns(0)).kind, Kind::kOnCall);
}

TEST(Conditions, WhatIsWrongIsRefusedAndChangesNothing) {
  Conditions when;
  const auto told = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(told([&] { when.periodic(Ns(0)); }), "conditions: a period of 0 ns; must be above 0");
  EXPECT_EQ(told([&] { when.count(-1); }), "conditions: a count of -1; must be 0 or more");
  EXPECT_EQ(told([&] { when.set(true); }), "conditions: set(): there is no switch; call switched() first");
  EXPECT_EQ(told([&] { when.complete(); }), "conditions: complete(): nothing waits for it; call asynchronous() first");
  EXPECT_EQ(starts_ms(when, milliseconds(1), 3).size(), 3u);
}

// By the machine's clock, on any machine however busy: never early, as often as said, and asleep in between.
TEST(Conditions, ByTheClockNoStartIsEarlyAndNobodyPolls) {
  Conditions when;
  when.periodic(milliseconds(2)).count(50);
  std::vector<std::chrono::steady_clock::time_point> starts;
  while (when.wait()) starts.push_back(std::chrono::steady_clock::now());
  ASSERT_EQ(starts.size(), 50u);
  for (size_t i = 1; i < starts.size(); ++i)
    EXPECT_GE(starts[i] + milliseconds(1), starts[0] + static_cast<int64_t>(i) * milliseconds(2)) << i;
  EXPECT_LE(when.wakes(), 2 * 50) << "once for each tick; a sleep may end early once";
}

// The one who waits sleeps until something is complete: it is woken once for each call, at most.
TEST(Conditions, ACompletionWakesWithoutPolling) {
  constexpr int kCompletions = 100;
  Conditions when;
  when.asynchronous();
  std::promise<void> started;
  int64_t starts = 0;
  std::thread source([&] {
    started.set_value();
    while (when.wait()) ++starts;
  });
  started.get_future().wait();
  for (int i = 0; i < kCompletions; ++i) when.complete();
  while (when.starts() < kCompletions) std::this_thread::yield();
  when.stop();
  source.join();
  EXPECT_EQ(starts, kCompletions);
  EXPECT_LE(when.wakes(), kCompletions + 1);
}

}  // namespace
}  // namespace sluice::api
