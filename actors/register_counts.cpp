// Tells where the tokens of a run are, from how often its actors have fired.
#include "actors/runner.h"
#include "plan/firing/token_counts.h"

namespace sluice::actors {

std::vector<RegisterCounts> Runner::register_counts() const {
  const plan::Plan& plan = *run_.plan;
  std::vector<uint64_t> fired;
  for (const Node* node : nodes_) fired.push_back(node->firings());
  const std::vector<plan::TokenCounts> tokens = plan::token_counts(plan, run_.adjacency, fired);
  std::vector<RegisterCounts> counts(plan.registers.size());
  for (size_t r = 0; r < counts.size(); ++r) {
    const bool read = !run_.adjacency.register_edges[r].empty();
    counts[r].tokens = tokens[r].written - (read ? static_cast<uint64_t>(plan.registers[r].initial_tokens) : 0);
    counts[r].ready = tokens[r].ready;
    counts[r].used = tokens[r].used;
  }
  for (size_t a = 0; a < nodes_.size(); ++a) {
    const std::vector<int>& registers = run_.adjacency.out_registers[a];
    for (size_t p = 0; p < registers.size(); ++p) {
      counts[static_cast<size_t>(registers[p])].peak = nodes_[a]->peak_slots(static_cast<int>(p));
    }
  }
  return counts;
}

}  // namespace sluice::actors
