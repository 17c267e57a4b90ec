#pragma once
// Counts which steps the sinks of a session have delivered.
//
// Thread safety: none of its own. The lock of its session guards it.
//
// Invariants
//  1. A sink delivers steps in order: all below its next_step, and no other.
//  2. A step is delivered once every sink has delivered it. A sink that has ended delivers no more, and nothing waits
//     for it.
#include <algorithm>
#include <cstdint>
#include <vector>

namespace sluice {

class SinkProgress {
 public:
  struct Sink {
    int actor = 0;
    uint64_t per_step = 1;    // firings; 1 also where a firing answers several steps at once
    uint64_t per_period = 1;  // firings
  };
  // A firing of a sink delivers its part of the steps first, ..., last.
  struct Delivery {
    uint64_t firing = 0, part = 0;
    uint64_t first = 0, last = 0;
    bool complete = false;  // it is the last part
  };

  // `period`: steps after which the plan is back in its initial state.
  SinkProgress(std::vector<Sink> sinks, uint64_t period);

  // The sink fires, and gives all up to `step`. Returns which steps those are.
  Delivery fire(int actor, uint64_t step);
  // The results of that firing are where they belong.
  void deliver(int actor, const Delivery& delivery);
  // The sink delivers no more. Returns the first step that it has not delivered.
  uint64_t end(int actor);

  // Steps, of `submitted`, that all sinks have delivered.
  uint64_t delivered(uint64_t submitted) const;
  // The first sink has delivered it, or the part of the plan that runs here has no sink.
  bool first_has_delivered(uint64_t step) const { return states_.empty() || states_.front().next_step > step; }
  // All sinks are as they were before their first firing.
  void reset() { states_.assign(states_.size(), {}); }

 private:
  struct State {
    uint64_t next_step = 0;  // the first not delivered
    uint64_t fired = 0;
    bool ended = false;
  };
  size_t index_of(int actor) const;

  const std::vector<Sink> sinks_;
  const uint64_t period_;
  std::vector<State> states_;  // per sink
};

}  // namespace sluice
