#pragma once
// Of sessions that share memory, lets one at a time have steps in flight.
//
// Thread safety: every method.
#include <condition_variable>
#include <mutex>

#include "base/error.h"

namespace sluice {

class Turns {
 public:
  // While it lives, no other session than that of its number may submit steps. Empty: it would have had to wait.
  class Inside {
   public:
    Inside() = default;
    explicit Inside(Turns* turns) : turns_(turns) {}
    Inside(Inside&& other) noexcept : turns_(other.turns_) { other.turns_ = nullptr; }
    Inside& operator=(Inside&&) = delete;
    ~Inside() {
      if (turns_ != nullptr) turns_->leave();
    }
    explicit operator bool() const { return turns_ != nullptr; }

   private:
    Turns* turns_ = nullptr;
  };

  // `idle(session)` says whether a session has no step in flight; `finish(session)` waits for that, and throws kTimeout
  // where it takes too long. What else it throws is kept for take_late().
  template <class Idle, class Finish>
  Inside enter(int session, bool try_only, Idle&& idle, Finish&& finish) {
    // Whoever wants another session's turn holds the door meanwhile: first come, first served.
    std::unique_lock door(door_, std::defer_lock);
    if (!try_only)
      door.lock();
    else if (!door.try_lock())
      return {};
    std::unique_lock lock(mutex_);
    if (active_ != session) {
      if (try_only && (inside_ > 0 || (active_ >= 0 && !idle(active_)))) return {};
      left_.wait(lock, [&] { return inside_ == 0; });
      if (active_ >= 0) {
        try {
          finish(active_);
        } catch (const Error& error) {
          if (error.kind() == ErrorKind::kTimeout) throw;
          if (late_.ok()) late_ = Status(error.kind(), error.what());
        }
      }
      active_ = session;
    }
    ++inside_;
    return Inside(this);
  }
  // The first error that no handle has shown.
  Status take_late() {
    const std::lock_guard lock(mutex_);
    Status late = std::move(late_);
    late_ = {};
    return late;
  }

 private:
  void leave() {
    const std::lock_guard lock(mutex_);
    --inside_;
    left_.notify_all();
  }

  std::mutex door_, mutex_;
  std::condition_variable left_;
  int inside_ = 0, active_ = -1;
  Status late_;
};

}  // namespace sluice
