#pragma once
// Cores of the machine, lent to whoever runs kernels: the sum never exceeds the machine.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/fork.h"

namespace sluice {

// A first-come, first-served counting semaphore of cores. A stream takes its width before it runs kernels and gives it
// back when its queue is empty or others wait; eager ops take theirs for the call. Thread-safe; never allocates.
//
// Invariants
//  1. state_ holds (waiters, free cores) in one word, so that nobody passes someone who waits.
//  2. A waiter is counted before it looks at the free cores, and cores are returned before the waiters are looked at,
//     both in that word: a release either finds the waiter or is seen by it.
//  3. In a child of fork() all cores are free: whoever held some has stayed in its parent.
class CoreLeases {
 public:
  explicit CoreLeases(int cores);
  int cores() const { return cores_; }
  // Blocks until `n` cores are free (n is clamped to cores(); of 0 nobody waits). Served in arrival order. Throws what
  // check_interrupt() (base/interrupt.h) throws, and then holds nothing.
  void acquire(int n);
  // acquire() if it need not wait; else false, and nothing is held.
  bool try_acquire(int n);
  // acquire() with a limit: false, and nothing held, when it took longer.
  bool acquire_for(int n, std::chrono::nanoseconds timeout);
  // REQUIRES: `n` cores were acquired and not yet released.
  void release(int n);
  // Someone is waiting: a holder should give its cores back at its next firing.
  bool contended() const { return state_.load(std::memory_order_relaxed) >= kWaiter; }

 private:
  void after_fork(bool in_child);
  static constexpr uint64_t kWaiter = uint64_t{1} << 32;
  bool try_take(uint64_t n);
  bool acquire_slow(uint64_t n, std::chrono::nanoseconds timeout);
  void leave(std::unique_lock<std::mutex>& lock, uint64_t ticket);
  void wake();
  void serve_next();  // REQUIRES: mutex_ held
  uint64_t clamp(int n) const { return n < 0 ? 0 : static_cast<uint64_t>(n < cores_ ? n : cores_); }

  const int cores_;
  std::atomic<uint64_t> state_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t next_ticket_ = 0, serving_ = 0;
  std::vector<uint64_t> left_;  // tickets whose waiters have been interrupted
  const ForkListener on_fork_{[this] { mutex_.lock(); }, [this](bool in_child) { after_fork(in_child); }};
};

// Cores for a scope.
class CoreLease {
 public:
  CoreLease(CoreLeases& leases, int n) : leases_(leases), n_(n) { leases_.acquire(n_); }
  ~CoreLease() { leases_.release(n_); }
  CoreLease(const CoreLease&) = delete;
  CoreLease& operator=(const CoreLease&) = delete;

 private:
  CoreLeases& leases_;
  const int n_;
};

}  // namespace sluice
