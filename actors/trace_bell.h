#pragma once
// Wakes whoever takes a trace's events in turns, before a ring is full.
#include <chrono>
#include <utility>

#include "base/mutex.h"

namespace sluice::actors {

// Thread safety: every method.
class TraceBell {
 public:
  void ring() {
    {
      const MutexLock lock(mutex_);
      rung_ = true;
    }
    changed_.notify_one();
  }
  // Until it rings, and at most `timeout`. Returns whether it has rung since the last wait. One thread at a time.
  bool wait_for(std::chrono::milliseconds timeout) {
    MutexLock lock(mutex_);
    changed_.wait_for(lock, timeout, [this]() SLUICE_REQUIRES(mutex_) { return rung_; });
    return std::exchange(rung_, false);
  }

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  bool rung_ SLUICE_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice::actors
