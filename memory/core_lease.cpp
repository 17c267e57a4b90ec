#include "memory/core_lease.h"

#include <new>

#include "base/error.h"
#include "base/interrupt.h"

namespace sluice {

CoreLeases::CoreLeases(int cores) : cores_(cores), state_(static_cast<uint64_t>(cores)) {
  SLUICE_CHECK(cores > 0, "cores: {} to lend; must be positive", cores);
}

bool CoreLeases::try_acquire(int n) {
  const uint64_t want = clamp(n);
  if (want == 0) return true;
  uint64_t state = state_.load(std::memory_order_relaxed);
  while (state < kWaiter && state >= want) {
    if (state_.compare_exchange_weak(state, state - want, std::memory_order_acquire, std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

void CoreLeases::acquire(int n) { static_cast<void>(acquire_for(n, kWaitForever)); }

bool CoreLeases::acquire_for(int n, std::chrono::nanoseconds timeout) {
  return try_acquire(n) || acquire_slow(clamp(n), timeout);
}

// For the waiter whose turn it is: others that wait do not hinder it.
bool CoreLeases::try_take(uint64_t n) {
  uint64_t state = state_.load(std::memory_order_relaxed);
  while (state % kWaiter >= n) {
    if (state_.compare_exchange_weak(state, state - n - kWaiter, std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

bool CoreLeases::acquire_slow(uint64_t n, std::chrono::nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  const uint64_t ticket = next_ticket_++;
  state_.fetch_add(kWaiter, std::memory_order_seq_cst);
  const auto served = [&] { return ticket == serving_ && try_take(n); };
  bool taken = false;
  try {
    taken = interruptible_wait(lock, changed_, timeout, served);
  } catch (...) {
    leave(lock, ticket);
    throw;
  }
  if (!taken) {
    leave(lock, ticket);
    return false;
  }
  serve_next();
  lock.unlock();
  changed_.notify_all();  // the next in line may be served by what is left
  return true;
}

// Out of the queue without having been served.
void CoreLeases::leave(std::unique_lock<std::mutex>& lock, uint64_t ticket) {
  state_.fetch_sub(kWaiter, std::memory_order_seq_cst);
  if (ticket == serving_) {
    serve_next();
  } else {
    left_.push_back(ticket);
  }
  lock.unlock();
  changed_.notify_all();
}

void CoreLeases::after_fork(bool in_child) {
  if (in_child) {
    state_.store(static_cast<uint64_t>(cores_), std::memory_order_relaxed);
    serving_ = next_ticket_;
    left_.clear();
    new (&changed_) std::condition_variable();  // the old one counts on waiters that are gone
  }
  mutex_.unlock();
}

void CoreLeases::serve_next() {
  for (++serving_; std::erase(left_, serving_) > 0; ++serving_) {
  }
}

void CoreLeases::release(int n) {
  const uint64_t given = clamp(n);
  if (given > 0 && state_.fetch_add(given, std::memory_order_seq_cst) >= kWaiter) wake();
}

// Under the lock, so that no waiter is between looking at the cores and falling asleep.
void CoreLeases::wake() {
  { std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

}  // namespace sluice
