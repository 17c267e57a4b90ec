#include "runtime/session/deadlines.h"

#include <algorithm>
#include <utility>

#include "base/thread.h"
#include "runtime/session/session_core.h"
#include "runtime/session/step_state.h"

namespace sluice {

Deadlines::~Deadlines() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Deadlines::watch(Clock::time_point deadline, const std::shared_ptr<StepState>& state) {
  const MutexLock lock(mutex_);
  heap_.push_back({deadline, state, state->use});
  std::push_heap(heap_.begin(), heap_.end());
  if (!thread_.joinable()) {
    try {
      thread_ = start_thread("deadlines of steps", "deadlines", [this] { run(); });
    } catch (...) {
      heap_.clear();
      throw;
    }
  }
  if (heap_.front().deadline == deadline) changed_.notify_one();
}

void Deadlines::run() {
  MutexLock lock(mutex_);
  while (!ending_) {
    if (heap_.empty()) {
      changed_.wait(lock);
    } else if (const Clock::time_point next = heap_.front().deadline; Clock::now() < next) {
      changed_.wait_until(lock, next);
    } else {
      std::pop_heap(heap_.begin(), heap_.end());
      const Entry due = std::move(heap_.back());
      heap_.pop_back();
      lock.unlock();
      if (const std::shared_ptr<StepState> state = due.state.lock()) {
        if (const std::shared_ptr<SessionCore> session = state->session.lock()) session->give_up_late(*state, due.use);
      }
      lock.lock();
    }
  }
}

}  // namespace sluice
