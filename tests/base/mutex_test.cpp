// Locks with annotations do as the standard library's.
#include "base/mutex.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "base/interrupt.h"

namespace sluice {
namespace {

template <class... How>
int count_on_two_threads(How... how) {
  Mutex mutex;
  int count = 0;
  const auto add = [&] {
    for (int i = 0; i < 20000; ++i) {
      const MutexLock lock(mutex, how...);
      ++count;
    }
  };
  std::thread other(add);
  add();
  other.join();
  return count;
}

TEST(MutexLock, WaitsForWhoHoldsIt) { EXPECT_EQ(count_on_two_threads(), 40000); }

TEST(MutexLock, WaitsForWhoHoldsItSoon) { EXPECT_EQ(count_on_two_threads(kLockSoon), 40000); }

bool is_free(Mutex& mutex) {
  bool free = false;
  std::thread([&] { free = MutexLock(mutex, std::try_to_lock).owns_lock(); }).join();
  return free;
}

TEST(MutexLock, HoldsItExceptBetweenUnlockAndLock) {
  Mutex mutex;
  {
    MutexLock lock(mutex);
    EXPECT_FALSE(is_free(mutex));
    lock.unlock();
    EXPECT_TRUE(is_free(mutex));
    lock.lock();
    EXPECT_FALSE(is_free(mutex));
  }
  EXPECT_TRUE(is_free(mutex));
}

TEST(MutexUnlock, TakesTheLockAgainWhenWhatItIsForThrows) {
  Mutex mutex;
  const MutexLock lock(mutex);
  try {
    const MutexUnlock meanwhile(mutex);
    EXPECT_TRUE(is_free(mutex));
    throw std::runtime_error("it failed");
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(is_free(mutex));
}

TEST(ConditionVariable, AWaitEndsWhenItIsToldAndHoldsTheLock) {
  Mutex mutex;
  ConditionVariable changed;
  bool waits = false, may_go = false;
  std::thread other([&] {
    MutexLock lock(mutex);
    changed.wait(lock, [&] { return waits; });
    may_go = true;
    changed.notify_all();
  });
  {
    MutexLock lock(mutex);
    waits = true;
    changed.notify_all();
    EXPECT_TRUE(interruptible_wait(lock, changed, kWaitForever, [&] { return may_go; }));
    EXPECT_TRUE(lock.owns_lock());
    EXPECT_FALSE(interruptible_wait(lock, changed, std::chrono::nanoseconds(1), [] { return false; }));
    EXPECT_FALSE(is_free(mutex));
  }
  other.join();
}

}  // namespace
}  // namespace sluice
