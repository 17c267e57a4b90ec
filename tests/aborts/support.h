#pragma once
// Helpers that the tests of aborts share: what a process holds, plans in flight, time limits.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include "runtime/fixture.h"
#include "support/soak.h"

namespace sluice::test {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

inline size_t threads_now() {
  size_t n = 0;
  for ([[maybe_unused]] const auto& task : std::filesystem::directory_iterator("/proc/self/task")) ++n;
  return n;
}

// Threads that have been joined are gone from /proc a moment later.
inline size_t threads_at_rest() {
  size_t least = threads_now();
  for (int i = 0; i < 50; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    least = std::min(least, threads_now());
  }
  return least;
}
inline size_t threads_settled(size_t expected) {
  for (int i = 0; i < 2000 && threads_now() > expected; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return threads_now();
}

inline int64_t resident_bytes() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * 4096;
}

}  // namespace sluice::test
