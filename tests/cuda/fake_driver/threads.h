#pragma once
// The threads of a launch: block after block, each thread of a block up to its next __syncthreads() in turn.
#include <functional>

namespace fake_cuda {

// The layout is known to cpu_shim.h.
struct Thread {
  unsigned grid = 1, block = 1, at = 0, thread = 0;
  void (*barrier)() = nullptr;
};

// Calls run(thread) for each thread of the launch. If they meet at barriers, they are fibers of the calling thread; the
// order within a block changes at each barrier, and a barrier that only some of them reach ends the process.
void run_threads(unsigned blocks, unsigned threads, bool barriers, const std::function<void(Thread&)>& run);

}  // namespace fake_cuda
