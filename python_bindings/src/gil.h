#pragma once
// The GIL, for threads that may outlive the interpreter.
//
// Once the interpreter is finalising, taking the GIL ends the calling thread by unwinding its stack, which C++ answers
// with std::terminate as soon as a frame is noexcept, as destructors are. What is here lets such a thread sleep for
// ever instead: the process is about to exit.
#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <thread>

namespace sluice::python {

[[noreturn]] inline void sleep_until_exit() {
  while (true) pause();
}

// Runs `f`; a thread that is being ended in it goes to sleep.
template <class F>
auto unless_ended(F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (abi::__forced_unwind&) {
    sleep_until_exit();
  }
}

// The thread in which the process exits; none before its exit.
inline std::atomic<std::thread::id> exiting_thread;

inline bool exits_elsewhere() {
  const std::thread::id exiting = exiting_thread;
  return exiting != std::thread::id() && exiting != std::this_thread::get_id();
}

// Calls of Python in which the calling thread is, below C++. A thread of Python's own is in none.
inline thread_local int calls_of_python = 0;

// From now on std::terminate, where no exception is the reason, lets each thread sleep that is not the calling one:
// code that is not ours has noexcept frames, too, between a thread and the interpreter that ends it. Call it once, at
// exit.
inline void let_ended_threads_sleep() {
  exiting_thread = std::this_thread::get_id();
  static const std::terminate_handler before = std::get_terminate();
  std::set_terminate([] {
    if (std::current_exception() == nullptr && exits_elsewhere()) sleep_until_exit();
    before();
    std::abort();
  });
}

class GilAcquire {
 public:
  GilAcquire() : state_(unless_ended([] { return PyGILState_Ensure(); })) { ++calls_of_python; }
  ~GilAcquire() {
    --calls_of_python;
    PyGILState_Release(state_);
  }
  GilAcquire(const GilAcquire&) = delete;
  GilAcquire& operator=(const GilAcquire&) = delete;

 private:
  const PyGILState_STATE state_;
};

// A daemon thread whose call ends at the exit sleeps. It would go on with the error of a graph that was closed, and a
// thread that prints one while CPython 3.13 ends aborts the process.
class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease() {
    if (calls_of_python == 0 && exits_elsewhere()) sleep_until_exit();
    unless_ended([this] { PyEval_RestoreThread(state_); });
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* const state_;
};

}  // namespace sluice::python
