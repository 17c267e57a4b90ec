#pragma once
// How long one thread has worked, readable by others while it does.
//
// Thread safety: pause() and resume() by the owner's thread; busy_ns() and pauses() by any.
#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace sluice::actors {

// Starts paused.
class BusyClock {
 public:
  // Both return the time they took, as now_ns() gives it.
  int64_t resume() {
    const int64_t now = now_ns();
    const int64_t busy = ~state_.load(std::memory_order_relaxed);
    state_.store(now - busy, std::memory_order_release);
    return now;
  }
  int64_t pause() {
    pauses_.store(pauses_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return stop();
  }
  // The same at the end of work that another thread has done meanwhile: the pause of before goes on.
  int64_t stop() {
    const int64_t now = now_ns();
    state_.store(~(now - state_.load(std::memory_order_relaxed)), std::memory_order_release);
    return now;
  }
  bool running() const { return state_.load(std::memory_order_relaxed) >= 0; }
  // Never less than an earlier call gave.
  int64_t busy_ns() const {
    for (;;) {
      const int64_t state = state_.load(std::memory_order_acquire);
      if (state < 0) return not_less(~state);
      const int64_t now = now_ns();
      // Paused meanwhile: `now` may be later than the pause.
      if (state_.load(std::memory_order_acquire) == state) return not_less(now - state);
    }
  }
  uint64_t pauses() const { return pauses_.load(std::memory_order_relaxed); }

  // Paused for a scope, if it runs.
  class Pause {
   public:
    explicit Pause(BusyClock& clock) : clock_(clock.running() ? &clock : nullptr) {
      if (clock_ != nullptr) clock_->pause();
    }
    ~Pause() {
      if (clock_ != nullptr) clock_->resume();
    }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    BusyClock* clock_;
  };

 private:
  // The owner takes the time of a pause a moment before it shows: what was told in between stays true.
  int64_t not_less(int64_t busy) const {
    int64_t told = told_.load(std::memory_order_relaxed);
    while (told < busy && !told_.compare_exchange_weak(told, busy, std::memory_order_relaxed)) {
    }
    return told < busy ? busy : told;
  }

  mutable std::atomic<int64_t> told_{0};
  // Paused: ~ of the busy time so far. Running: the time at which it would have begun had it never paused.
  std::atomic<int64_t> state_{~int64_t{0}};
  std::atomic<uint64_t> pauses_{0};
};

}  // namespace sluice::actors
