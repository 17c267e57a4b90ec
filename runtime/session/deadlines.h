#pragma once
// Gives up steps that are not over by their deadlines: one thread for all sessions of an engine, made with the first.
//
// Thread safety: watch() may be called from any thread, also under a session's lock. The thread calls sessions without
// a lock of its own.
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace sluice {

class StepState;

class Deadlines {
 public:
  using Clock = std::chrono::steady_clock;
  Deadlines() = default;
  ~Deadlines();
  Deadlines(const Deadlines&) = delete;
  Deadlines& operator=(const Deadlines&) = delete;

  // Watches the step that the state stands for now. Throws kRuntime where no thread can be made. REQUIRES: the lock of
  // its session is held.
  void watch(Clock::time_point deadline, const std::shared_ptr<StepState>& state);

 private:
  struct Entry {
    Clock::time_point deadline;
    std::weak_ptr<StepState> state;
    uint64_t use = 0;
    bool operator<(const Entry& other) const { return deadline > other.deadline; }  // the first is on top of the heap
  };
  void run();

  Mutex mutex_;
  ConditionVariable changed_;
  std::vector<Entry> heap_ SLUICE_GUARDED_BY(mutex_);
  bool ending_ SLUICE_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sluice
