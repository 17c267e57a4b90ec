#include "plan/firing/token_counts.h"

#include <algorithm>

namespace sluice::plan {
namespace {

uint64_t up(uint64_t n, int d) { return (n + static_cast<uint64_t>(d) - 1) / static_cast<uint64_t>(d); }
uint64_t down(uint64_t n, int d) { return n / static_cast<uint64_t>(d); }
uint64_t minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

// Registers, those that are in place of another's edge before that other.
std::vector<int> in_place_first(const Plan& plan) {
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

std::vector<TokenCounts> token_counts(const Plan& plan, const Adjacency& adjacency, std::span<const uint64_t> fired) {
  std::vector<TokenCounts> counts(plan.registers.size());
  std::vector<uint64_t> acked(plan.edges.size());
  std::vector<bool> in_place(plan.edges.size());
  for (const int r : in_place_first(plan)) {
    const Register& reg = plan.registers[r];
    const std::vector<int>& edges = adjacency.register_edges[r];
    const uint64_t initial = edges.empty() ? 0 : static_cast<uint64_t>(reg.initial_tokens);
    const uint64_t firings = fired[static_cast<size_t>(reg.producer)];
    TokenCounts& c = counts[r];
    c.acquired = initial + up(firings, reg.emit_every);
    c.written = initial + down(firings, reg.emit_every);
    uint64_t taken = c.written;
    c.freed = c.written;
    for (const int e : edges) {
      const Edge& edge = plan.edges[e];
      const uint64_t reads = fired[static_cast<size_t>(edge.consumer)], take = static_cast<uint64_t>(edge.take);
      const uint64_t released = down(reads, edge.hold) * take;
      acked[e] = in_place[e] ? std::min(acked[e], released) : released;
      taken = std::min(taken, up(reads, edge.hold) * take);
      c.freed = std::min(c.freed, acked[e]);
    }
    if (reg.in_place_of >= 0) {
      in_place[reg.in_place_of] = true;
      acked[reg.in_place_of] = c.freed;
    }
    c.ready = static_cast<int>(std::min<uint64_t>(c.written - taken, reg.quota));
    c.used = static_cast<int>(std::min<uint64_t>(c.acquired - c.freed, reg.quota));
  }
  return counts;
}

std::optional<FiringRule::Wait> missing_message(const Plan& plan, const Adjacency& adjacency,
                                                std::span<const TokenCounts> counts, std::span<const uint64_t> fired,
                                                int actor, uint64_t started) {
  const uint64_t next = fired[static_cast<size_t>(actor)];
  if (is_started(plan.actors[actor]) && next >= started) return FiringRule::Wait{.credit = false, .index = -1};
  for (const int e : adjacency.in_edges[actor]) {
    const Edge& edge = plan.edges[e];
    const uint64_t needed = (down(next, edge.hold) + 1) * static_cast<uint64_t>(edge.take);
    if (counts[edge.reg].written < needed) return FiringRule::Wait{.credit = false, .index = e};
  }
  for (const int r : adjacency.out_registers[actor]) {
    const Register& reg = plan.registers[r];
    const uint64_t emit_every = static_cast<uint64_t>(reg.emit_every);
    if (next % emit_every != 0 || adjacency.register_edges[r].empty()) continue;
    if (minus(counts[r].acquired, counts[r].freed) >= static_cast<uint64_t>(reg.quota))
      return FiringRule::Wait{.credit = true, .index = r};
  }
  return std::nullopt;
}

}  // namespace sluice::plan
