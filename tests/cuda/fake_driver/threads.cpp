#include "cuda/fake_driver/threads.h"

#include <setjmp.h>
#include <ucontext.h>
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

namespace fake_cuda {
namespace {

constexpr size_t kStack = 64 << 10;

// ThreadSanitizer keeps the stack of calls of whoever runs, and must be told of each change. (It sees longjmp, which
// goes with _setjmp as well, but not _longjmp.) Nothing without it.
class Track {
#if defined(__SANITIZE_THREAD__)
 public:
  Track() : of_(__tsan_create_fiber(0)) {}
  Track(Track&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
  Track& operator=(Track&&) = delete;
  ~Track() {
    if (of_ != nullptr) __tsan_destroy_fiber(of_);
  }
  static void* running() { return __tsan_get_current_fiber(); }
  static void enter(void* other) { __tsan_switch_to_fiber(other, 0); }
  void enter() const { enter(of_); }

 private:
  void* of_;
#else
 public:
  static void* running() { return nullptr; }
  static void enter(void*) {}
  void enter() const {}
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
  void* home_track = nullptr;
};
thread_local Block block;

void barrier() {
  if (_setjmp(block.fibers[block.running].at) != 0) return;
  Track::enter(block.home_track);
  longjmp(block.home, 1);
}

void body() {
  for (;;) {
    (*block.run)(block.thread);
    block.fibers[block.running].done = true;
    barrier();
  }
}

void enter(Fiber& fiber) {
  fiber.track.enter();
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
  block.home_track = Track::running();
  if (_setjmp(block.home) == 0) enter(block.fibers[i]);
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
