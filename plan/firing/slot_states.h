#pragma once
// Says what is in each slot of a register, and who has it, from how often each actor has fired.
#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.h"

namespace sluice::plan {

struct SlotState {
  int slot = 0;
  bool used = false;     // else it is free: a credit of the producer
  bool written = false;  // else the producer is at it, for which several firings are needed
  uint64_t token = 0;    // of the register, where it is used; initial tokens count
  // An actor that has not given the slot back: it has yet to take the value, or is not through with it.
  struct Reader {
    int actor = 0;
    bool taken = false;
  };
  std::vector<Reader> readers;
  std::vector<int> in_place;  // registers in its place, whose readers have it
};

// Per slot of register `reg`, once actor a has fired fired[a] times and no message is under way.
std::vector<SlotState> slot_states(const Plan& plan, const Adjacency& adjacency, std::span<const uint64_t> fired,
                                   int reg);

}  // namespace sluice::plan
