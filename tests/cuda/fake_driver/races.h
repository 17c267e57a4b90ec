#pragma once
// Which accesses to memory are ordered, by vector clocks of streams.
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cuda/fake_driver/fake_driver.h"

namespace fake_cuda {

inline constexpr int kStreams = 64;
// Per stream: how many of its tasks have happened before.
struct Clock {
  std::array<uint64_t, kStreams> ticks{};
  void join(const Clock& other) {
    for (int s = 0; s < kStreams; ++s) ticks[s] = ticks[s] > other.ticks[s] ? ticks[s] : other.ticks[s];
  }
};

// Accesses of the past, as far as they still matter. Bounded: an access replaces the same one of its stream.
class Races {
 public:
  // Returns "" or what is wrong with `access` by a task named `name` of `stream`, at `clock`, which counts the task.
  std::string add(const Access& access, int stream, const Clock& clock, const char* name);
  // Whether every access that must not overlap this one has happened before `clock`; "" or who has not.
  std::string unfinished(const Access& access, const Clock& clock) const;
  void forget(const void* data, uint64_t bytes);

 private:
  struct Past {
    uintptr_t begin, end;
    int stream;
    bool write;
    uint64_t tick;
    std::string name;
  };
  std::vector<Past> past_;
};

}  // namespace fake_cuda
