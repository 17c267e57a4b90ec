#pragma once
// std::mutex, std::unique_lock and std::condition_variable with the annotations that the standard library lacks. They
// compile to the same code.
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/pause.h"
#include "base/thread_annotations.h"

namespace sluice {

class ConditionVariable;
class MutexLock;

class SLUICE_LOCK_TYPE Mutex {
 public:
  constexpr Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  void lock() SLUICE_ACQUIRES() { mutex_.lock(); }
  bool try_lock() SLUICE_TRIES_TO_ACQUIRE(true) { return mutex_.try_lock(); }
  void unlock() SLUICE_RELEASES() { mutex_.unlock(); }

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

// Says that others hold a mutex for moments only, so that a thread that finds it taken looks again before it sleeps.
struct LockSoon {};
inline constexpr LockSoon kLockSoon;

// Holds a mutex for as long as it lives, except between unlock() and lock().
class SLUICE_HOLDS_LOCK MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) SLUICE_ACQUIRES(mutex) : lock_(mutex.mutex_) {}
  MutexLock(Mutex& mutex, LockSoon) SLUICE_ACQUIRES(mutex) : lock_(mutex.mutex_, std::defer_lock) {
    constexpr int kLooks = 100;
    for (int i = 0; i < kLooks; ++i) {
      if (lock_.try_lock()) return;
      cpu_pause();
    }
    lock_.lock();
  }
  MutexLock(Mutex& mutex, std::defer_lock_t) SLUICE_EXCLUDES(mutex) : lock_(mutex.mutex_, std::defer_lock) {}
  MutexLock(Mutex& mutex, std::try_to_lock_t) SLUICE_TRIES_TO_ACQUIRE(true, mutex)
      : lock_(mutex.mutex_, std::try_to_lock) {}
  ~MutexLock() SLUICE_RELEASES() {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  void lock() SLUICE_ACQUIRES() { lock_.lock(); }
  void unlock() SLUICE_RELEASES() { lock_.unlock(); }
  bool owns_lock() const { return lock_.owns_lock(); }

 private:
  friend class ConditionVariable;
  std::unique_lock<std::mutex> lock_;
};

// Lets go of a mutex that is held, for as long as it lives: for functions whose caller holds the lock.
class SLUICE_HOLDS_LOCK MutexUnlock {
 public:
  explicit MutexUnlock(Mutex& mutex) SLUICE_RELEASES(mutex) : mutex_(mutex) { mutex_.unlock(); }
  ~MutexUnlock() SLUICE_RELEASES() { mutex_.lock(); }
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  Mutex& mutex_;
};

// The analysis does not see that a predicate runs with the lock held; predicates say it of themselves:
// changed.wait(lock, [&]() SLUICE_REQUIRES(mutex_) { return done_; }).
class ConditionVariable {
 public:
  void notify_one() { changed_.notify_one(); }
  void notify_all() { changed_.notify_all(); }
  void wait(MutexLock& lock) { changed_.wait(lock.lock_); }
  template <class Done>
  void wait(MutexLock& lock, Done done) SLUICE_UNCHECKED_LOCKS {
    while (!done()) changed_.wait(lock.lock_);
  }
  template <class Rep, class Period>
  std::cv_status wait_for(MutexLock& lock, const std::chrono::duration<Rep, Period>& timeout) {
    return changed_.wait_for(lock.lock_, timeout);
  }
  template <class Rep, class Period, class Done>
  bool wait_for(MutexLock& lock, const std::chrono::duration<Rep, Period>& timeout, Done done) SLUICE_UNCHECKED_LOCKS {
    return changed_.wait_for(lock.lock_, timeout, std::move(done));
  }
  template <class Clock, class Duration>
  std::cv_status wait_until(MutexLock& lock, const std::chrono::time_point<Clock, Duration>& end) {
    return changed_.wait_until(lock.lock_, end);
  }
  template <class Clock, class Duration, class Done>
  bool wait_until(MutexLock& lock, const std::chrono::time_point<Clock, Duration>& end,
                  Done done) SLUICE_UNCHECKED_LOCKS {
    return changed_.wait_until(lock.lock_, end, std::move(done));
  }

 private:
  std::condition_variable changed_;
};

}  // namespace sluice
