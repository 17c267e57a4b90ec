#pragma once
// Lets only one at a time of several sessions that share the memory of their arenas have steps in flight.
//
// Thread safety: every method.
//
// Invariants
//  1. A member submits steps only while it is inside, and nobody is inside but the active one.
//  2. The active member changes only while nobody is inside and the one of before is at rest.
//  3. Members that wait stand in line and are served in that order; only the first looks at the active member. mutex_
//     is not held while it waits for that one's steps.
#include <chrono>
#include <memory>

#include "base/mutex.h"

namespace sluice {

class Turns {
 public:
  // A session that takes turns.
  class Member {
   public:
    virtual ~Member() = default;
    virtual const char* name() const = 0;
    // No step of it is in flight, and none that was left behind uses its memory. Never blocks.
    virtual bool at_rest() const = 0;
    // Waits until it is. Throws kTimeout naming who is stuck, kRuntime where waiting would never end.
    virtual void come_to_rest(std::chrono::nanoseconds timeout) = 0;
  };

  // While it lives, only its member may submit steps. Empty: it would have had to wait.
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

  // Waits for its turn, unless `try_only`. Throws kTimeout, and what come_to_rest() of another member throws.
  Inside enter(const std::shared_ptr<Member>& member, std::chrono::nanoseconds timeout, bool try_only);

 private:
  class InLine;
  void leave();

  Mutex mutex_;
  ConditionVariable changed_;
  InLine* first_ SLUICE_GUARDED_BY(mutex_) = nullptr;
  InLine* last_ SLUICE_GUARDED_BY(mutex_) = nullptr;
  std::weak_ptr<Member> active_ SLUICE_GUARDED_BY(mutex_);
  int inside_ SLUICE_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice
