#pragma once
// Work that is done in turns, so that others have theirs in between: a function that says co_yield Turn() when it has
// done as much as takes about a millisecond.
#include <coroutine>
#include <exception>
#include <utility>

namespace sluice::serving {

struct Turn {};

class Turns {
 public:
  struct promise_type {
    Turns get_return_object() { return Turns(Handle::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    std::suspend_always yield_value(Turn) noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { error = std::current_exception(); }
    std::exception_ptr error;
  };
  using Handle = std::coroutine_handle<promise_type>;

  Turns(Turns&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;
  ~Turns() {
    if (handle_) handle_.destroy();
  }

  // Takes the next turn, on whatever thread. False when it was the last; throws what the work throws.
  bool next() {
    handle_.resume();
    if (handle_.promise().error) std::rethrow_exception(std::exchange(handle_.promise().error, nullptr));
    return !handle_.done();
  }
  void finish() {
    while (next()) {
    }
  }

 private:
  explicit Turns(Handle handle) : handle_(handle) {}
  Handle handle_;
};

}  // namespace sluice::serving
