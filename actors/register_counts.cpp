// Tells where the tokens of a run are, from how often its actors have fired: by determinacy nothing more is needed.
#include <algorithm>

#include "actors/runner.h"

namespace sluice::actors {
namespace {

uint64_t up(uint64_t n, int d) { return (n + static_cast<uint64_t>(d) - 1) / static_cast<uint64_t>(d); }
uint64_t down(uint64_t n, int d) { return n / static_cast<uint64_t>(d); }

// Registers, those that are in place of another's edge before that other.
std::vector<int> in_place_first(const plan::Plan& plan) {
  std::vector<std::vector<int>> in_place(plan.registers.size());
  std::vector<int> order;
  for (size_t r = 0; r < plan.registers.size(); ++r) {
    const int edge = plan.registers[r].in_place_of;
    if (edge < 0) {
      order.push_back(static_cast<int>(r));
    } else {
      in_place[static_cast<size_t>(plan.edges[edge].reg)].push_back(static_cast<int>(r));
    }
  }
  for (size_t i = 0; i < order.size(); ++i) {
    for (const int r : in_place[static_cast<size_t>(order[i])]) order.push_back(r);
  }
  std::reverse(order.begin(), order.end());
  return order;
}

}  // namespace

std::vector<RegisterCounts> Runner::register_counts() const {
  const plan::Plan& plan = *run_.plan;
  std::vector<uint64_t> fired;
  for (const Node* node : nodes_) fired.push_back(node->firings());
  std::vector<RegisterCounts> counts(plan.registers.size());
  std::vector<uint64_t> acked(plan.edges.size());
  std::vector<uint64_t> freed(plan.registers.size());
  std::vector<bool> in_place(plan.edges.size());
  for (const int r : in_place_first(plan)) {
    const plan::Register& reg = plan.registers[r];
    const std::vector<int>& edges = run_.adjacency.register_edges[r];
    const uint64_t initial = edges.empty() ? 0 : static_cast<uint64_t>(reg.initial_tokens);
    const uint64_t firings = fired[static_cast<size_t>(reg.producer)];
    const uint64_t acquired = initial + up(firings, reg.emit_every);
    const uint64_t written = initial + down(firings, reg.emit_every);
    uint64_t taken = written, free_again = written;
    for (const int e : edges) {
      const plan::Edge& edge = plan.edges[e];
      const uint64_t reads = fired[static_cast<size_t>(edge.consumer)], take = static_cast<uint64_t>(edge.take);
      const uint64_t released = down(reads, edge.hold) * take;
      acked[e] = in_place[e] ? std::min(acked[e], released) : released;
      taken = std::min(taken, up(reads, edge.hold) * take);
      free_again = std::min(free_again, acked[e]);
    }
    freed[r] = free_again;
    if (reg.in_place_of >= 0) {
      in_place[reg.in_place_of] = true;
      acked[reg.in_place_of] = freed[r];
    }
    counts[r].tokens = written - initial;
    counts[r].ready = static_cast<int>(std::min<uint64_t>(written - taken, reg.quota));
    counts[r].used = static_cast<int>(std::min<uint64_t>(acquired - free_again, reg.quota));
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
