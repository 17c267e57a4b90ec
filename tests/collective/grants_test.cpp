// Tokens that are granted their place before anybody waits for them.
#include <numeric>
#include <random>

#include "collective/ranks.h"

namespace sluice::test {
namespace {

constexpr uint32_t kChannel = kFirstChannel;

// Two ranks; f(world, a group of the two).
std::vector<std::string> of_two(const std::function<void(World&, Communicator&)>& f,
                                const std::function<void(WorldOptions&)>& change = {}) {
  return in_world(
      2,
      [&](World& world, Communicator&) {
        const auto group = world.communicator({0, 1}, kChannel);
        f(world, *group);
      },
      change);
}

void grant(Communicator& group, int& to, int from = 0) { ASSERT_TRUE(group.grant(&to, sizeof to, from)); }

// Grants and transfers in any order that keeps the grants ahead: each token lands where it was granted.
TEST(Grants, TokensGoWhereTheyWereGranted) {
  constexpr int kTokens = 2000;
  EXPECT_THAT(of_two([&](World& world, Communicator& group) {
                std::mt19937 random(7);
                std::vector<int> data(kTokens, -1);
                if (world.rank() == 0) std::iota(data.begin(), data.end(), 0);
                int granted = 0;
                for (int i = 0; i < kTokens; ++i) {
                  const int most = std::min(kTokens, i + static_cast<int>(random() % 5));
                  for (granted = std::max(granted, i); world.rank() == 1 && granted < most; ++granted)
                    grant(group, data[granted]);
                  if (world.rank() == 1) {
                    ASSERT_EQ(group.granted(), granted - i);
                  }
                  group.transfer(&data[i], sizeof data[i], 0);
                  ASSERT_EQ(data[i], i);
                }
              }),
              Each("no error"));
}

TEST(Grants, ThereAreNoMoreThanSome) {
  EXPECT_THAT(of_two([&](World& world, Communicator& group) {
                int to[64];
                int granted = 0;
                while (granted < 64 && group.grant(&to[granted], sizeof(int), 0)) ++granted;
                EXPECT_EQ(granted, world.rank() == 0 ? 0 : 8);  // who sends grants nothing
                EXPECT_EQ(group.granted(), granted);
                world.all().barrier();
                group.take_back();
                EXPECT_EQ(group.granted(), 0);
              }),
              Each("no error"));
}

// Bytes that the other side sends later are read and forgotten, and the job goes on.
TEST(Grants, WhatIsTakenBackIsNotWrittenTo) {
  EXPECT_THAT(of_two([&](World& world, Communicator& group) {
                int data[2] = {world.rank() == 0 ? 5 : -1, world.rank() == 0 ? 6 : -1};
                if (world.rank() == 1) {
                  for (int& to : data) grant(group, to);
                }
                world.all().barrier();  // has told of the grants
                if (world.rank() == 1) group.take_back();
                world.all().barrier();
                if (world.rank() == 0) {
                  for (int& from : data) group.transfer(&from, sizeof from, 0);
                }
                for (int i = 0; i < 3; ++i) world.all().barrier();
                if (world.rank() == 1) {
                  EXPECT_EQ(data[0], -1);
                  EXPECT_EQ(data[1], -1);
                }
                EXPECT_TRUE(world.failure().ok());
              }),
              Each("no error"));
}

TEST(Grants, OfARankThatLeavesAreMissedByNobodyUnlessTheyAreWaitedFor) {
  for (const bool waits : {false, true}) {
    const auto errors = of_two([waits](World& world, Communicator& group) {
      int to = 0;
      if (world.rank() == 1) grant(group, to);
      world.all().barrier();
      if (world.rank() == 0) return;  // leaves
      if (waits) return group.transfer(&to, sizeof to, 0);
      group.take_back();
    });
    EXPECT_EQ(errors[0], "no error");
    EXPECT_EQ(errors[1], waits ? "runtime: transfer: rank 0 has left while rank 1 still wants something of it; all "
                                 "ranks must make the same calls"
                               : "no error");
  }
}

TEST(Grants, AMissedCallFailsAloneAndTheNextGrantHolds) {
  constexpr int kTokens = 60;
  EXPECT_THAT(of_two([&](World& world, Communicator& group) {
                std::vector<int> data(kTokens, -1);
                for (int i = 0; i < kTokens; ++i) {
                  if (world.rank() == 0) {
                    data[i] = i;
                    if (i % 3 == 1)
                      group.miss("its step failed");
                    else
                      group.transfer(&data[i], sizeof(int), 0);
                    continue;
                  }
                  while (i + group.granted() < std::min(kTokens, i + 3)) {
                    if (!group.grant(&data[i + group.granted()], sizeof(int), 0)) break;  // known to be missed
                  }
                  const std::string error = error_of([&] { group.transfer(&data[i], sizeof(int), 0); });
                  ASSERT_EQ(error,
                            i % 3 == 1 ? "runtime: transfer: rank 0 takes no part: its step failed" : "no error");
                  ASSERT_EQ(data[i], i % 3 == 1 ? -1 : i);
                }
                EXPECT_TRUE(world.failure().ok());
              }),
              Each("no error"));
}

// Its own rank misses the call: the place is free again, whatever the other side had sent.
TEST(Grants, AReceiverMayMissWhatItHasGranted) {
  constexpr int kTokens = 40;
  EXPECT_THAT(of_two([&](World& world, Communicator& group) {
                std::vector<int> data(kTokens, world.rank() == 0 ? 1 : -1);
                for (int i = 0; i < kTokens; ++i) {
                  if (world.rank() == 0) {
                    const std::string error = error_of([&] { group.transfer(&data[i], sizeof(int), 0); });
                    if (i % 4 != 2) {
                      ASSERT_EQ(error, "no error");
                    } else if (error != "no error") {  // or it was sent before that was known
                      ASSERT_EQ(error, "runtime: transfer: rank 1 takes no part: not now");
                    }
                    continue;
                  }
                  while (group.granted() < 3 && i + group.granted() < kTokens) {
                    if (!group.grant(&data[i + group.granted()], sizeof(int), 0)) break;
                  }
                  if (i % 4 == 2)
                    group.miss("not now");
                  else
                    group.transfer(&data[i], sizeof(int), 0);
                  if (i % 4 != 2) {
                    ASSERT_EQ(data[i], 1);
                  }
                }
                EXPECT_TRUE(world.failure().ok());
              }),
              Each("no error"));
}

TEST(Grants, OfOtherSizesAreAnErrorOnBothSides) {
  const auto errors = of_two([](World& world, Communicator& group) {
    double data = 0;
    if (world.rank() == 1) {
      ASSERT_TRUE(group.grant(&data, 8, 0));
      group.transfer(&data, 8, 0);
    } else {
      group.transfer(&data, 4, 0);
    }
    world.all().barrier();
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error, HasSubstr("rank 0 has 4 bytes for rank 1, which expects 8; all ranks must make the same call"));
}

TEST(Grants, WhoDoesNotSendIsNamedAfterTheTimeout) {
  const auto errors = of_two(
      [](World& world, Communicator& group) {
        int to = 0;
        world.all().barrier();
        if (world.rank() == 0) {
          while (world.failure().ok()) std::this_thread::yield();
          return;
        }
        grant(group, to);
        group.transfer(&to, sizeof to, 0);
      },
      [](WorldOptions& o) { o.timeout = milliseconds(1000); });
  EXPECT_THAT(errors[1], HasSubstr("timeout: transfer: rank 1 waited 1000 ms for rank 0, which is alive"));
}

// A grant alone, with nothing to travel with, arrives when somebody waits for its bytes.
TEST(Grants, AreToldOfWithoutCompany) {
  EXPECT_THAT(of_two([&](World&, Communicator& group) {
                for (int i = 0; i < 100; ++i) {
                  int data = group.rank() == 0 ? i : -1;
                  if (group.rank() == 1) grant(group, data);
                  group.transfer(&data, sizeof data, 0);
                  ASSERT_EQ(data, i);
                }
              }),
              Each("no error"));
}

}  // namespace
}  // namespace sluice::test
