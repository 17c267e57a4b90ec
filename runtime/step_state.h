#pragma once
// One submitted step: what its handle and the session's stream threads share.
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/interrupt.h"
#include "runtime/session.h"

namespace sluice {

// Reused by its session once nobody else holds it.
class StepState {
 public:
  uint64_t step = 0;
  std::weak_ptr<SessionCore> session;
  std::vector<OutputTensor> outputs;
  int sinks_done = 0;  // session's lock
  Status pending;      // session's lock: the first sink's failure

  void reset(uint64_t new_step) {
    step = new_step;
    sinks_done = 0;
    pending = {};
    done_ = false;
    status_ = {};
  }
  void finish(Status status) {
    std::lock_guard lock(mutex_);
    status_ = std::move(status);
    done_ = true;
    changed_.notify_all();
  }
  bool done() const {
    std::lock_guard lock(mutex_);
    return done_;
  }
  // False when it took longer.
  bool wait(Timeout timeout) {
    std::unique_lock lock(mutex_);
    return interruptible_wait(lock, changed_, timeout, [&] { return done_; });
  }
  // REQUIRES: done().
  Status status() const {
    std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  Status status_;
};

}  // namespace sluice
