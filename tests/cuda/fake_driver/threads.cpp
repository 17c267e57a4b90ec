#include "cuda/fake_driver/threads.h"

#include <setjmp.h>
#include <ucontext.h>
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#elif defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

namespace fake_cuda {
namespace {

constexpr size_t kStack = 64 << 10;

// Sanitizers keep a stack for whoever runs, and must be told of each change, before and after. Nothing without them.
// ThreadSanitizer sees longjmp, which goes with _setjmp as well, but not _longjmp.
class Track {
#if defined(__SANITIZE_THREAD__)
 public:
  static Track of_caller() { return Track(__tsan_get_current_fiber()); }
  Track() : of_(__tsan_create_fiber(0)), owned_(true) {}
  Track(Track&& other) noexcept : of_(other.of_), owned_(std::exchange(other.owned_, false)) {}
  Track& operator=(Track&& other) noexcept {
    std::swap(of_, other.of_);
    std::swap(owned_, other.owned_);
    return *this;
  }
  ~Track() {
    if (owned_) __tsan_destroy_fiber(of_);
  }
  void leave_for(const Track& next, const char*) { __tsan_switch_to_fiber(next.of_, 0); }
  void arrive(Track&) {}

 private:
  explicit Track(void* of) : of_(of), owned_(false) {}
  void* of_;
  bool owned_;
#elif defined(__SANITIZE_ADDRESS__)
 public:
  static Track of_caller() { return {}; }
  // stack: where `next` runs; null where that is known from its arrival elsewhere.
  void leave_for(const Track& next, const char* stack) {
    __sanitizer_start_switch_fiber(&frames_, stack == nullptr ? next.bottom_ : stack,
                                   stack == nullptr ? next.bytes_ : kStack);
  }
  void arrive(Track& last) { __sanitizer_finish_switch_fiber(frames_, &last.bottom_, &last.bytes_); }

 private:
  void* frames_ = nullptr;
  const void* bottom_ = nullptr;
  size_t bytes_ = 0;
#else
 public:
  static Track of_caller() { return {}; }
  void leave_for(const Track&, const char*) {}
  void arrive(Track&) {}
#endif
};

// A context is made once, goes from run to run, and is left and entered by jumps, which cost no system call.
struct Fiber {
  std::unique_ptr<char[]> stack{new char[kStack]};
  Track track;
  ucontext_t start;
  jmp_buf at;
  bool started = false, done = false;
};

struct Block {
  std::vector<Fiber> fibers;
  Thread thread;
  const std::function<void(Thread&)>* run = nullptr;
  size_t running = 0;
  jmp_buf home;
  Track home_track = Track::of_caller();
};
thread_local Block block;

Fiber& running() { return block.fibers[block.running]; }

void barrier() {
  Fiber& fiber = running();
  if (_setjmp(fiber.at) == 0) {
    fiber.track.leave_for(block.home_track, nullptr);
    longjmp(block.home, 1);
  }
  running().track.arrive(block.home_track);
}

void body() {
  running().track.arrive(block.home_track);
  for (;;) {
    (*block.run)(block.thread);
    running().done = true;
    barrier();
  }
}

void enter(Fiber& fiber) {
  block.home_track.leave_for(fiber.track, fiber.stack.get());
  if (fiber.started) longjmp(fiber.at, 1);
  fiber.started = true;
  getcontext(&fiber.start);
  fiber.start.uc_stack.ss_sp = fiber.stack.get();
  fiber.start.uc_stack.ss_size = kStack;
  fiber.start.uc_link = nullptr;
  makecontext(&fiber.start, body, 0);
  setcontext(&fiber.start);
}

void resume(size_t i) {
  block.running = i;
  block.thread.thread = static_cast<unsigned>(i);
  if (_setjmp(block.home) == 0) enter(running());
  block.home_track.arrive(running().track);
}

void run_block(unsigned threads) {
  for (unsigned i = 0; i < threads; ++i) block.fibers[i].done = false;
  for (size_t phase = 0, left = threads; left > 0; ++phase) {
    size_t ended = 0;
    for (size_t k = 0; k < threads; ++k) {
      const size_t i = phase % 2 == 0 ? k : threads - 1 - k;
      resume(i);
      ended += block.fibers[i].done;
    }
    if (ended != 0 && ended != threads) {
      std::fprintf(stderr, "fake CUDA driver: %zu of %u threads of a block reach a __syncthreads()\n", threads - ended,
                   threads);
      std::abort();
    }
    left -= ended;
  }
}

}  // namespace

void run_threads(unsigned blocks, unsigned threads, bool barriers, const std::function<void(Thread&)>& run) {
  block.run = &run;
  block.thread = {blocks, threads, 0, 0, barrier};
  if (barriers && block.fibers.size() < threads) block.fibers.resize(threads);
  for (block.thread.at = 0; block.thread.at < blocks; ++block.thread.at) {
    if (barriers) {
      run_block(threads);
    } else {
      for (block.thread.thread = 0; block.thread.thread < threads; ++block.thread.thread) run(block.thread);
    }
  }
}

}  // namespace fake_cuda
