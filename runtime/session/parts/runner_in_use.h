#pragma once
// The runner that a session has now, and those who look at it without the session's lock.
//
// Thread safety: none of its own. The lock of its session guards it, which is also held when a RunnerUse is made. A
// RunnerUse ends without it.
//
// Invariants
//  1. While a RunnerUse lives, its runner and what that needs stay; whoever replaces or takes the runner waits for it.
//  2. Once the runner has been taken, the session never has another.
#include <memory>
#include <utility>

#include "actors/runner.h"
#include "base/mutex.h"

namespace sluice {

class RunnerInUse {
 public:
  // `mutex`: the session's lock. `changed` is told when the last RunnerUse has ended. REQUIRES: both outlive it.
  RunnerInUse(Mutex& mutex, ConditionVariable& changed, std::shared_ptr<actors::Runner> runner)
      : mutex_(mutex), changed_(changed), runner_(std::move(runner)) {}

  const std::shared_ptr<actors::Runner>& get() const { return runner_; }
  // Returns the one of before. REQUIRES: unused().
  std::shared_ptr<actors::Runner> replace(std::shared_ptr<actors::Runner> runner) {
    return std::exchange(runner_, std::move(runner));
  }
  bool unused() const { return uses_ == 0; }

 private:
  friend class RunnerUse;
  Mutex& mutex_;
  ConditionVariable& changed_;
  std::shared_ptr<actors::Runner> runner_;
  int uses_ = 0;
};

// Keeps the runner, if there is one, for as long as it lives.
class RunnerUse {
 public:
  RunnerUse() = default;
  explicit RunnerUse(RunnerInUse& owner) {
    if (owner.runner_ == nullptr) return;
    owner_ = &owner;
    runner_ = owner.runner_.get();
    ++owner.uses_;
  }
  RunnerUse(RunnerUse&& other) noexcept
      : owner_(std::exchange(other.owner_, nullptr)), runner_(std::exchange(other.runner_, nullptr)) {}
  RunnerUse& operator=(RunnerUse&&) = delete;
  ~RunnerUse() {
    if (owner_ == nullptr) return;
    const MutexLock lock(owner_->mutex_);
    if (--owner_->uses_ == 0) owner_->changed_.notify_all();
  }
  explicit operator bool() const { return runner_ != nullptr; }
  actors::Runner& operator*() const { return *runner_; }
  actors::Runner* operator->() const { return runner_; }

 private:
  RunnerInUse* owner_ = nullptr;
  actors::Runner* runner_ = nullptr;
};

}  // namespace sluice
