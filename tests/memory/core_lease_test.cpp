#include "memory/core_lease.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include "base/error.h"

namespace sluice {
namespace {

TEST(CoreLeases, LendsUpToTheMachine) {
  CoreLeases leases(4);
  leases.acquire(3);
  leases.acquire(1);
  EXPECT_FALSE(leases.contended());
  leases.release(1);
  leases.release(3);
  leases.acquire(9);  // clamped
  leases.release(9);
  leases.acquire(4);
  leases.release(4);
}

TEST(CoreLeases, RefusesAnEmptyMachine) {
  try {
    CoreLeases leases(0);
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "cores: 0 to lend; must be positive");
  }
}

TEST(CoreLeases, TheWaiterIsSeenAndServed) {
  CoreLeases leases(2);
  leases.acquire(2);
  std::atomic<bool> served{false};
  std::thread waiter([&] {
    leases.acquire(1);
    served = true;
    leases.release(1);
  });
  while (!leases.contended()) std::this_thread::yield();
  EXPECT_FALSE(served.load());
  leases.release(2);
  waiter.join();
  EXPECT_TRUE(served.load());
  EXPECT_FALSE(leases.contended());
}

// A wide request at the head of the line is not starved by narrow ones behind it.
TEST(CoreLeases, ServesInArrivalOrder) {
  CoreLeases leases(2);
  leases.acquire(1);
  std::atomic<bool> wide_served{false}, narrow_started{false}, in_order{false};
  std::thread wide([&] {
    leases.acquire(2);
    wide_served = true;
    leases.release(2);
  });
  while (!leases.contended()) std::this_thread::yield();
  std::thread narrow([&] {
    narrow_started = true;
    leases.acquire(1);  // one core is free, but the wide request came first
    in_order = wide_served.load();
    leases.release(1);
  });
  while (!narrow_started) std::this_thread::yield();
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();  // time to overtake, were it possible
  leases.release(1);
  wide.join();
  narrow.join();
  EXPECT_TRUE(in_order.load());
}

TEST(CoreLeases, TheSumNeverExceedsTheMachine) {
  constexpr int kCores = 3, kThreads = 4, kRounds = 3000;
  CoreLeases leases(kCores);
  std::atomic<int> used{0};
  std::atomic<bool> exceeded{false};
  std::latch start(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      for (int i = 0; i < kRounds; ++i) {
        const int n = 1 + (i + t) % kCores;
        CoreLease lease(leases, n);
        if (used.fetch_add(n) + n > kCores) exceeded = true;
        used.fetch_sub(n);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_FALSE(exceeded.load());
  EXPECT_FALSE(leases.contended());
  leases.acquire(kCores);  // everything came back
  leases.release(kCores);
}

}  // namespace
}  // namespace sluice
