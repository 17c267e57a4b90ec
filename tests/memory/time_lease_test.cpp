#include "memory/time_lease.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "base/error.h"

namespace sluice {
namespace {

// The part of the time that each member has had when the first has no request left. A turn of member m takes
// takes[m](), in a time that nobody waits for.
template <class Takes>
std::vector<double> shares_of(const std::vector<double>& weights, int turns, Takes takes) {
  TimeLeases leases;
  for (const double weight : weights) leases.add(weight, turns);
  for (int m = 0; m < static_cast<int>(weights.size()); ++m)
    for (int t = 0; t < turns; ++t) EXPECT_TRUE(leases.ask(m));
  std::vector<int> left(weights.size(), turns);
  while (true) {
    const std::optional<int> member = leases.take();
    if (!member) break;
    leases.give_back(*member, takes(*member));
    if (--left[static_cast<size_t>(*member)] == 0) break;
  }
  std::vector<double> seconds;
  for (const TimeLeases::Share& share : leases.shares()) seconds.push_back(share.seconds);
  const double all = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  for (double& s : seconds) s /= all;
  return seconds;
}

TEST(TimeLeases, TimeIsByWeightsHoweverLongTurnsAre) {  // C-24
  const std::vector<std::vector<double>> lengths = {{1, 1}, {3, 0.5}, {0.25, 2}, {0.001, 0.01}};
  for (const std::vector<double>& length : lengths) {
    const std::vector<double> got =
        shares_of({70, 30}, 2000, [&](int member) { return length[static_cast<size_t>(member)]; });
    EXPECT_NEAR(got[0], 0.7, 0.05) << length[0] << " and " << length[1];
    EXPECT_NEAR(got[1], 0.3, 0.05);
  }
}

TEST(TimeLeases, TurnsOfAnyLengthAddUp) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> length(0.1, 5);
  const std::vector<double> got = shares_of({50, 30, 20}, 3000, [&](int) { return length(random); });
  EXPECT_NEAR(got[0], 0.5, 0.05);
  EXPECT_NEAR(got[1], 0.3, 0.05);
  EXPECT_NEAR(got[2], 0.2, 0.05);
}

TEST(TimeLeases, WhoComesBackGetsNothingForWhatWasMissed) {
  TimeLeases leases;
  const int busy = leases.add(1, 100), idle = leases.add(1, 100);
  for (int t = 0; t < 50; ++t) {
    leases.ask(busy);
    leases.give_back(leases.take().value(), 1);
  }
  for (int t = 0; t < 20; ++t) {
    leases.ask(busy);
    leases.ask(idle);
  }
  int turns_of_busy = 0;
  for (int t = 0; t < 20; ++t) {
    const int member = leases.take().value();
    turns_of_busy += member == busy;
    leases.give_back(member, 1);
  }
  EXPECT_NEAR(turns_of_busy, 10, 1);
}

TEST(TimeLeases, WhoHasNoRoomWaitsForATurn) {
  TimeLeases leases;
  const int member = leases.add(1, 1);
  EXPECT_TRUE(leases.ask(member));
  std::thread second([&] { EXPECT_TRUE(leases.ask(member)); });
  EXPECT_EQ(leases.take(), member);
  second.join();  // there is room now
  EXPECT_EQ(leases.shares()[0].waiting, 1);
  leases.close();
  EXPECT_FALSE(leases.ask(member));
  EXPECT_EQ(leases.take(), member);
  leases.give_back(member, 2, false);
  EXPECT_EQ(leases.take(), std::nullopt);
  EXPECT_EQ(leases.shares()[0].turns, 0u);
}

TEST(TimeLeases, ClosingWakesWhoWaits) {
  TimeLeases leases;
  const int member = leases.add(1, 1);
  EXPECT_TRUE(leases.ask(member));
  std::thread full([&] { EXPECT_FALSE(leases.ask(member)); });
  leases.close();
  full.join();
  EXPECT_EQ(leases.take(), member);
  EXPECT_EQ(leases.take(), std::nullopt);
}

TEST(TimeLeases, BadUsesAreNamed) {
  TimeLeases leases;
  const auto said = [](auto use) -> std::string {
    try {
      use();
      return "nothing";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(said([&] { leases.add(0, 1); }), "shares: weight: 0; must be a positive number");
  EXPECT_EQ(said([&] { leases.add(1, 0); }), "shares: room for 0 requests; must be at least one");
  EXPECT_EQ(said([&] { leases.ask(3); }), "shares: member 3: not there; there are 0");
}

}  // namespace
}  // namespace sluice
