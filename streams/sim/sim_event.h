#pragma once
// A point in a sim stream's work, reused for many recordings.
#include <atomic>
#include <cstdint>

#include "streams/stream.h"

namespace sluice {

// Recordings are numbered: the host counts them when it queues a record(), the worker when it executes one. Whoever
// waits means the latest recording queued before the wait. The status and time of a recording are written before it
// counts as complete, and not again before everyone who waits for it has read them (the contract of Event).
class SimEvent final : public Event {
 public:
  bool complete() const override { return reached(recorded_.load(std::memory_order_relaxed)); }
  Status wait() override;

 private:
  friend class SimStream;
  bool reached(uint32_t recording) const {
    return static_cast<int32_t>(completed_.load(std::memory_order_acquire) - recording) >= 0;
  }
  void wait_for(uint32_t recording) const;

  std::atomic<uint32_t> recorded_{0};
  std::atomic<uint32_t> completed_{0};
  Status status_;
  int64_t time_ns_ = 0;
};

}  // namespace sluice
