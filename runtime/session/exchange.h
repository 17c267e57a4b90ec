#pragma once
// Ports that exchange memory with callers: what is handed over takes the place of a slot of the feed's register; of a
// register that only the sink reads, the slot itself is handed out. The plan has no memory for such slots.
#include <cstdint>
#include <vector>

#include "plan/firing/firing_counts.h"
#include "plan/plan.h"
#include "runtime/session/ports.h"

namespace sluice {

// Slots whose memory comes and goes. Several registers share slots if some are in place of others.
struct ExchangedSlots {
  std::vector<int> registers;
  int quota = 1;
  uint64_t bytes = 0;  // of each
  plan::Space space;
  bool fed = false;  // a feed's register is among them: each of its firings brings the memory
  bool out = false;  // the sink takes it away
};

struct Exchange {
  std::vector<ExchangedSlots> slots;
  std::vector<int> of_register;  // per register of the plan: in `slots`; -1: its slots stay where they are
  std::vector<bool> registers() const;
};

// Decides, and says in `ports` where callers' memory lies and why it is copied.
Exchange find_exchange(const plan::Plan& plan, const plan::FiringCounts& counts, Ports& ports,
                       const SessionOptions& options);

// Takes such slots out of the plan's arenas, into one of no bytes per space.
void set_apart(plan::Plan& plan, const Exchange& exchange);

}  // namespace sluice
