#pragma once
// Waits that may be short: to look for what comes costs less than to fall asleep and be woken, if it comes at once.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>

#include "base/clock.h"
#include "base/pause.h"

namespace sluice {

// A place where threads wait. Before a thread sleeps there it looks for a moment, about as long as a sleep and a
// wake-up take, but only while waits here tend to end within it. So threads whose waits are long sleep at once, and
// where others want the cores nobody spins: a thread that lost its core while it looked stops all of them for a while.
// It gives way every half microsecond or so: the thread that brings what it waits for may have been woken on its core.
// That costs a system call where nobody else wants the core, and lets the other thread run at once where one does.
//
// Thread safety: every method; what one thread learns holds for all that wait here.
class ShortWait {
 public:
  // A round through another process, with two cores that have to be woken, is within this on a virtual machine.
  static constexpr int64_t kLongestLookNs = 100'000;
  // `allowed`: false where nobody may ever spin.
  explicit ShortWait(bool allowed = true) : score_(allowed ? kPays : kNever) {}

  // Looks until `done`; false when it has not come, or was not looked for: then the caller sleeps, and says so.
  template <class Done>
  bool look(Done&& done) {
    if (score_.load(std::memory_order_relaxed) < kPays) return false;
    const int64_t begin_ns = now_ns();
    int64_t now = begin_ns;
    do {
      for (int i = 0; i < kLooksPerClock; ++i) {
        if (done()) {
          learn(1);
          return true;
        }
        cpu_pause();
      }
      const int64_t last = now;
      std::this_thread::yield();
      now = now_ns();
      if (now - last > kLongestLookNs) {  // somebody else had the core
        learn(kLost);
        return done();
      }
    } while (now - begin_ns < kLongestLookNs);
    learn(-2);
    return false;
  }
  // A thread that did not look has slept so long here, its falling asleep and waking up included.
  void slept(int64_t ns) {
    if (!looks()) learn(ns < kLongestLookNs ? 1 : -1);
  }
  // Nobody looks any more.
  void forbid() { score_.store(kNever, std::memory_order_relaxed); }
  // Whether the next wait begins with a look.
  bool looks() const { return score_.load(std::memory_order_relaxed) >= kPays; }

 private:
  static constexpr int kLooksPerClock = 16;
  // Two waits that were too long are outweighed by four short ones. A thread that has lost the core once does without
  // waiting for a long time.
  static constexpr int kLeast = -4, kPays = 4, kMost = 8, kLost = -100, kNever = -1'000'000;
  void learn(int by) {
    int score = score_.load(std::memory_order_relaxed);
    if (score == kNever) return;
    const int least = by == kLost ? kLost : std::min(kLeast, score);
    // A result that another thread learns meanwhile, or forbid(), counts for more.
    score_.compare_exchange_strong(score, std::clamp(score + by, least, kMost), std::memory_order_relaxed);
  }

  std::atomic<int> score_;
};

}  // namespace sluice
