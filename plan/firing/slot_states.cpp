#include "plan/firing/slot_states.h"

#include "plan/firing/token_counts.h"

namespace sluice::plan {

std::vector<SlotState> slot_states(const Plan& plan, const Adjacency& adjacency, std::span<const uint64_t> fired,
                                   int reg) {
  const Register& r = plan.registers[reg];
  const std::vector<TokenCounts> all = token_counts(plan, adjacency, fired);
  const TokenCounts& counts = all[reg];
  const auto quota = static_cast<uint64_t>(r.quota);
  std::vector<SlotState> slots(quota);
  for (uint64_t s = 0; s < quota; ++s) slots[s].slot = static_cast<int>(s);
  for (uint64_t token = counts.freed; token < counts.acquired; ++token) {
    SlotState& slot = slots[token % quota];
    slot.used = true;
    slot.token = token;
    slot.written = token < counts.written;
    for (const int e : adjacency.register_edges[reg]) {
      const Edge& edge = plan.edges[e];
      const uint64_t reads = fired[edge.consumer];
      const auto take = static_cast<uint64_t>(edge.take), hold = static_cast<uint64_t>(edge.hold);
      if (!slot.written || token < reads / hold * take) continue;
      slot.readers.push_back({edge.consumer, token < (reads + hold - 1) / hold * take});
    }
    for (int other = 0; other < static_cast<int>(plan.registers.size()); ++other) {
      const int edge = plan.registers[other].in_place_of;
      if (edge >= 0 && plan.edges[edge].reg == reg && token >= all[other].freed && token < all[other].acquired)
        slot.in_place.push_back(other);
    }
  }
  return slots;
}

}  // namespace sluice::plan
