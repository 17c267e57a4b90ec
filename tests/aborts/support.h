#pragma once
// What the tests of aborts share: what a process holds, plans in flight, time limits.
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

// Sanitizers, and machines shared with others, are slower; what must hold is that things end.
inline constexpr auto kLimit = std::chrono::seconds(2);

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

inline size_t threads_now() {
  size_t n = 0;
  for ([[maybe_unused]] const auto& task : std::filesystem::directory_iterator("/proc/self/task")) ++n;
  return n;
}

// Threads that have been joined are gone from /proc a moment later.
inline size_t threads_settled(size_t expected) {
  for (int i = 0; i < 2000 && threads_now() > expected; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return threads_now();
}

inline int64_t resident_bytes() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * 4096;
}

// host -> sim:0 -> host, with the op "stage" on the device.
inline Plan device_plan(const std::string& stage) {
  Plans b("device");
  const int host = b.stream("cpu:0", StreamKind::kHost), in = b.stream("sim:0", StreamKind::kCopyIn);
  const int compute = b.stream("sim:0", StreamKind::kCompute), out = b.stream("sim:0", StreamKind::kCopyOut);
  const int device = b.space(SpaceKind::kDevice, "sim:0");
  const int feed = b.feed("feed", host), up = b.actor("up", in), net = b.actor("net", compute);
  const int down = b.actor("down", out), sink = b.sink("sink", host);
  const int x = b.reg("x", feed, {up}, {.quota = 2, .bytes = 16});
  const int dx = b.reg("dx", up, {net}, {.quota = 2, .bytes = 16, .space = device});
  const int dy = b.reg("dy", net, {down}, {.quota = 2, .bytes = 16, .space = device});
  const int y = b.reg("y", down, {sink}, {.quota = 2, .bytes = 16});
  b.reg("order", net, {net}, {.quota = 2, .initial_tokens = 1});
  b.run(up, "copy", {b.r(x)}, {b.r(dx)});
  b.call(net, stage, {b.r(dx)}, {b.r(dy)});
  b.run(down, "copy", {b.r(dy)}, {b.r(y)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  return b.build();
}

}  // namespace sluice::test
