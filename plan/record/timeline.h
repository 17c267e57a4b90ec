#pragma once
// What each actor of a recorded run did at each moment, without gaps, and for whom it waited.
#include <cstdint>
#include <vector>

#include "plan/record/recording.h"

namespace sluice::plan {

// kRun: in a kernel. kRanks: in a collective, which waits for other ranks and moves data. kInput: for data of an edge,
// or (-1) for a step of the program. kCredit: for a free slot of a register. kStream: ready, while its stream was in a
// firing of another actor. kCores: for cores. kDevice: for an event of a device. kHost: messages and wake-ups, and what
// a firing does besides its kernels. kLost: events are missing.
enum class Spent : uint8_t { kRun, kRanks, kInput, kCredit, kStream, kCores, kDevice, kHost, kLost };
inline constexpr int kSpent = 9;
const char* spent_name(Spent spent);  // "run", "ranks", "input", "credit", "stream", "cores", "device", "host", "lost"

struct Segment {
  int64_t begin_ns = 0, end_ns = 0;
  Spent spent = Spent::kHost;
  int who = -1;  // kRun, kRanks: kernel; kInput: edge; kCredit: register; kStream: actor
};

struct Fired {
  uint64_t number = 0;  // 0, 1, ... of its actor
  uint64_t step = 0;
  int64_t begin_ns = 0, end_ns = 0;
};

struct Timeline {
  int64_t begin_ns = 0, end_ns = 0;          // of what was recorded
  std::vector<std::vector<Segment>> actors;  // each covers all of that, in order
  std::vector<std::vector<Fired>> firings;   // per actor, by number
};

// Throws kValue where the plan's rates do not hold.
Timeline timeline_of(const Recording& recording);

// A token of a register: the slot is taken from acquired_ns to freed_ns, and full from made_ns on. What happened before
// or behind the recording is INT64_MIN or INT64_MAX.
struct TokenTimes {
  uint64_t token = 0;
  int64_t acquired_ns = 0, made_ns = 0, freed_ns = 0;
};
// Per register, the tokens whose slots were taken while events were recorded, in order. Throws as timeline_of().
std::vector<std::vector<TokenTimes>> tokens_of(const Recording& recording);

// An edge's token on its way: from the firing that made it to the one that took it, both recorded.
struct TokenWay {
  int edge = 0;
  int from = 0, to = 0;  // in Timeline::firings of the register's producer, and of the edge's consumer
};
std::vector<TokenWay> ways_of(const Plan& plan, const Timeline& timeline);

}  // namespace sluice::plan
