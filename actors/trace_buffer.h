#pragma once
// Trace events of one run. Thread-safe.
#include <chrono>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "base/trace.h"

namespace sluice::actors {

inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class TraceBuffer {
 public:
  // Begins a new trace: times count from now.
  void restart() {
    std::lock_guard lock(mutex_);
    events_.clear();
    events_.reserve(1 << 16);
    origin_ = now_ns();
    begin_unix_ns_ =
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
  }
  // begin_ns, end_ns as now_ns() gives them.
  void add(TraceEvent event) {
    std::lock_guard lock(mutex_);
    event.begin_ns = event.begin_ns < origin_ ? 0 : event.begin_ns - origin_;
    event.end_ns = event.end_ns < origin_ ? 0 : event.end_ns - origin_;
    events_.push_back(event);
  }
  // When the trace began, by the clock that processes share.
  int64_t begin_unix_ns() {
    std::lock_guard lock(mutex_);
    return begin_unix_ns_;
  }
  std::vector<TraceEvent> take() {
    std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }

 private:
  std::mutex mutex_;
  int64_t origin_ = 0, begin_unix_ns_ = 0;
  std::vector<TraceEvent> events_;
};

}  // namespace sluice::actors
