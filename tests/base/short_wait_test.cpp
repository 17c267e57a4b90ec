#include "base/short_wait.h"

#include <gtest/gtest.h>

#include <thread>

namespace sluice {
namespace {

constexpr int64_t kLong = 10 * ShortWait::kLongestLookNs;

// How many short sleeps it takes until waits begin with a look again; more than any number of them are 1000.
int short_sleeps_until_it_looks(ShortWait& wait) {
  int n = 0;
  for (; !wait.looks() && n < 1000; ++n) wait.slept(1);
  return n;
}

TEST(ShortWait, FindsWhatIsThere) {
  ShortWait wait;
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(wait.look([] { return true; }));
  EXPECT_TRUE(wait.looks());
}

TEST(ShortWait, FindsWhatAnotherThreadBrings) {
  // Whether in time is the scheduler's business; that it is never missed is ours.
  ShortWait wait;
  for (int i = 0; i < 200; ++i) {
    std::atomic<bool> here{false};
    std::thread other([&] { here.store(true, std::memory_order_release); });
    const bool found = wait.look([&] { return here.load(std::memory_order_acquire); });
    if (found) {
      EXPECT_TRUE(here);
    }
    other.join();
  }
}

TEST(ShortWait, DoesNotLookWhereWaitsAreLong) {
  ShortWait wait;
  int looks = 0;
  while (wait.looks() && looks < 100) {
    EXPECT_FALSE(wait.look([] { return false; }));
    ++looks;
  }
  EXPECT_LE(looks, 4);
  bool asked = false;
  EXPECT_FALSE(wait.look([&] { return asked = true; }));
  EXPECT_FALSE(asked);
  for (int i = 0; i < 1000; ++i) wait.slept(kLong);
  EXPECT_FALSE(wait.looks());
  const int n = short_sleeps_until_it_looks(wait);
  EXPECT_GT(n, 1);
  EXPECT_LT(n, 200);
}

TEST(ShortWait, StopsForAWhileWhenItsCoreWasTaken) {
  ShortWait wait;
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(wait.look([] { return true; }));
  bool taken = false;
  EXPECT_FALSE(wait.look([&] {
    if (taken) return false;
    taken = true;
    for (const int64_t end = now_ns() + kLong; now_ns() < end;) {
    }
    return false;
  }));
  EXPECT_FALSE(wait.looks());
  const int n = short_sleeps_until_it_looks(wait);
  EXPECT_GT(n, 50);
  EXPECT_LT(n, 200);
}

TEST(ShortWait, NeverLooksWhereItMayNot) {
  ShortWait wait(false);
  for (int i = 0; i < 1000; ++i) wait.slept(1);
  EXPECT_FALSE(wait.looks());
  bool asked = false;
  EXPECT_FALSE(wait.look([&] { return asked = true; }));
  EXPECT_FALSE(asked);
  ShortWait other;
  other.forbid();
  for (int i = 0; i < 1000; ++i) other.slept(1);
  EXPECT_FALSE(other.look([&] { return asked = true; }));
  EXPECT_FALSE(asked);
}

}  // namespace
}  // namespace sluice
