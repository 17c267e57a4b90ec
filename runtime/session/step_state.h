#pragma once
// One submitted step: what its handle and the session's stream threads share.
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/interrupt.h"
#include "base/mutex.h"
#include "base/short_wait.h"
#include "runtime/session/ports.h"

namespace sluice {

// A caller's name for the step, after what happened; without one, and of success, the same.
Status tagged(const Status& status, const std::string& tag);

// Reused by its session once nobody else holds it.
class StepState {
 public:
  uint64_t step = 0;
  std::weak_ptr<SessionCore> session;
  std::vector<OutputTensor> outputs;
  std::shared_ptr<const std::vector<Ports::Varying>> varying;  // axes of outputs; may be null
  std::vector<int64_t> extents;                                // per varying axis
  std::string tag;                                             // "": it has none
  StepDone on_done;                                            // null: nobody is called
  uint64_t use = 0;                                            // session's lock: which of its steps it stands for
  bool given = false;                                          // memory of `outputs` is its caller's
  bool pooled = false;                                         // its session keeps it for as long as its actors live
  Status pending;                                              // session's lock: the first sink's failure

  void reset(uint64_t new_step) {
    step = new_step;
    ++use;
    pending = {};
    tag.clear();
    done_ = false;
    cut_ = false;
    status_ = {};
  }
  // Makes outputs as long as they are; once. Thread-safe. REQUIRES: the sinks have delivered all.
  void cut();
  void finish(Status status) {
    const MutexLock lock(mutex_);
    status_ = std::move(status);
    done_.store(true, std::memory_order_release);
  }
  // Wakes who waits, after finish(). Better without locks: who is woken may run at once, in this thread's place.
  void tell() { changed_.notify_all(); }
  bool done() const { return done_.load(std::memory_order_acquire); }
  // False when it took longer. `short_wait`: of all who wait for steps of this session.
  bool wait(Timeout timeout, ShortWait& short_wait) {
    const int64_t begin_ns = now_ns();
    const bool may_look = timeout > std::chrono::nanoseconds(ShortWait::kLongestLookNs);
    if (may_look && short_wait.look([&] { return done(); })) return true;
    MutexLock lock(mutex_);
    if (!interruptible_wait(lock, changed_, timeout, [&] { return done(); })) return false;
    short_wait.slept(now_ns() - begin_ns);
    return true;
  }
  // REQUIRES: done().
  const Status& status() const { return status_; }

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  std::atomic<bool> done_{false};  // set behind all else
  bool cut_ = false;
  Status status_;  // read without the lock once done_
};

}  // namespace sluice
