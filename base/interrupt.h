#pragma once
// Lets a front end end long waits of its callers: Ctrl-C in Python. Without one, waits cost what they always did.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/thread_annotations.h"

namespace sluice {

// Called from time to time by threads that wait for others, without any lock held. Throws to end the wait.
using InterruptCheck = void (*)();
void set_interrupt_check(InterruptCheck check);
bool interruptible();
void check_interrupt();

// check_interrupt() does nothing on this thread for as long as one of these lives: for destructors.
class UninterruptedScope {
 public:
  UninterruptedScope();
  ~UninterruptedScope();
  UninterruptedScope(const UninterruptedScope&) = delete;
  UninterruptedScope& operator=(const UninterruptedScope&) = delete;
};

// A limit for several waits together.
class Deadline {
 public:
  explicit Deadline(std::chrono::nanoseconds timeout) : begin_(Clock::now()), timeout_(timeout) {}
  // The rest of the limit; never negative.
  std::chrono::nanoseconds left() const {
    return std::max<std::chrono::nanoseconds>(timeout_ - (Clock::now() - begin_), std::chrono::nanoseconds::zero());
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_;
  std::chrono::nanoseconds timeout_;
};

inline constexpr std::chrono::nanoseconds kWaitForever = std::chrono::nanoseconds::max();

// changed.wait_for(lock, timeout, done) that check_interrupt() may end; `lock` is held again when that throws.
template <class Lock, class Condition, class Done>
bool interruptible_wait(Lock& lock, Condition& changed, std::chrono::nanoseconds timeout,
                        Done&& done) SLUICE_UNCHECKED_LOCKS {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::nanoseconds kSlice = std::chrono::milliseconds(50);
  constexpr std::chrono::nanoseconds kLongest = std::chrono::hours(24 * 365);  // beyond it, clocks overflow
  if (done()) return true;
  const bool bounded = timeout < kLongest;
  if (!interruptible()) {
    if (bounded) return changed.wait_for(lock, timeout, done);
    changed.wait(lock, done);
    return true;
  }
  const Clock::time_point deadline = Clock::now() + std::min(timeout, kLongest);
  while (!done()) {
    const Clock::time_point now = Clock::now();
    if (bounded && now >= deadline) return false;
    changed.wait_until(lock, std::min(deadline, now + std::chrono::duration_cast<Clock::duration>(kSlice)));
    if (done()) return true;
    struct Unlocked {
      Lock& lock;
      explicit Unlocked(Lock& held) : lock(held) { lock.unlock(); }
      ~Unlocked() { lock.lock(); }
    };
    const Unlocked meanwhile(lock);
    check_interrupt();
  }
  return true;
}

}  // namespace sluice
