#pragma once
// fork(): the child has only the thread that called it, and finds every lock and count as it was at that moment.
#include <cstdint>
#include <functional>

#include "base/thread_annotations.h"

namespace sluice {

// How many forks lie between the process that loaded the library and this one. Anything that was made under another
// count has lost its threads.
uint64_t fork_count();

// Is told of each fork while it lives, so that the child can go on. Both calls come on the forking thread, which may
// hold locks of its program (Python's): what `before` waits for must not need those.
class ForkListener {
 public:
  ForkListener(std::function<void()> before, std::function<void(bool in_child)> after);
  ~ForkListener();
  ForkListener(const ForkListener&) = delete;
  ForkListener& operator=(const ForkListener&) = delete;

 private:
  friend struct ForkListeners;
  const std::function<void()> before_;
  const std::function<void(bool in_child)> after_;
};

// Nobody but the forking thread holds `mutex` across a fork. REQUIRES: whoever holds it takes no other such mutex.
class ForkLock {
 public:
  // The analysis of locks does not see that `mutex` is held from the one call to the other.
  template <class Lock>
  explicit ForkLock(Lock& mutex)
      : listener_([&mutex]() SLUICE_UNCHECKED_LOCKS { mutex.lock(); },
                  [&mutex](bool) SLUICE_UNCHECKED_LOCKS { mutex.unlock(); }) {}

 private:
  const ForkListener listener_;
};

}  // namespace sluice
