#pragma once
// Helpers that the tests of aborts share: what a process holds, plans in flight, time limits.
#include <chrono>
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include "runtime/fixture.h"
#include "support/soak.h"
#include "support/threads.h"

namespace sluice::test {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// `inner`, after other threads have had so many turns: the plan is somewhere else whenever that number is another.
inline HostFunction giving_way(int turns, HostFunction inner) {
  return [turns, inner = std::move(inner)](const KernelArgs& a, const std::vector<TensorSpec>& i,
                                           const std::vector<TensorSpec>& o) {
    for (int turn = 0; turn < turns; ++turn) std::this_thread::yield();
    inner(a, i, o);
  };
}

inline int64_t resident_bytes() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * 4096;
}

}  // namespace sluice::test
