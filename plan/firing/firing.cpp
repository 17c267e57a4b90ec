#include "plan/firing/firing.h"

#include <algorithm>

namespace sluice::plan {

FiringRule::FiringRule(const Plan& plan, const Adjacency& adjacency, int actor) {
  const ActorRole role = plan.actors[actor].role;
  source_ = role == ActorRole::kSource || role == ActorRole::kFeed;
  blockers_ = source_ ? 1 : 0;
  const std::vector<int>& in_edges = adjacency.in_edges[actor];
  const std::vector<int>& out_registers = adjacency.out_registers[actor];
  ins_.reserve(in_edges.size());
  outs_.reserve(out_registers.size());
  for (const int e : in_edges) {
    const Edge& edge = plan.edges[e];
    const Register& reg = plan.registers[edge.reg];
    In in;
    in.edge = e;
    in.take = in.need = edge.take;
    in.hold = edge.hold;
    in.quota = reg.quota;
    in.tokens = reg.initial_tokens;
    blockers_ += in.tokens < in.need;
    multirate_ |= in.hold != 1;
    in.plain = in.take == 1 && in.hold == 1;
    ins_.push_back(in);
  }
  for (const int r : out_registers) {
    const Register& reg = plan.registers[r];
    const std::vector<int>& edges = adjacency.register_edges[r];
    Out out;
    out.reg = r;
    out.quota = reg.quota;
    out.emit_every = reg.emit_every;
    // An initial token nobody consumes is free at once, like any other.
    const int initial = edges.empty() ? 0 : reg.initial_tokens;
    out.free = out.least_free = reg.quota - initial;
    out.next = wrap(initial, reg.quota);
    out.slot = out.next;
    out.consumers = static_cast<int>(edges.size());
    out.first_edge = static_cast<int>(edges_.size());
    if (edges.size() == 1) out.only_edge = edges[0];
    edges_.insert(edges_.end(), edges.begin(), edges.end());
    if (edges.size() > 1) {
      out.pending = static_cast<int>(pending_.size());
      pending_.resize(pending_.size() + reg.quota, 0);
      std::fill_n(pending_.begin() + out.pending, initial, out.consumers);
    }
    if (reg.in_place_of >= 0) {
      const auto it = std::find(in_edges.begin(), in_edges.end(), reg.in_place_of);
      out.in_place_in = static_cast<int>(it - in_edges.begin());
      ins_[out.in_place_in].in_place_out = static_cast<int>(outs_.size());
      ins_[out.in_place_in].plain = false;
    }
    out.plain = out.emit_every == 1 && out.consumers == 1;
    blockers_ += out.free < out.need;
    multirate_ |= out.emit_every != 1;
    outs_.push_back(out);
  }
}

bool FiringRule::must_end() const {
  if (source_ && stopped_ && credits_ == 0) return true;
  return std::any_of(ins_.begin(), ins_.end(), [](const In& in) { return in.ended && in.tokens < in.need; });
}

bool FiringRule::quiescent() const {
  return ended_ &&
         std::all_of(outs_.begin(), outs_.end(), [](const Out& out) { return out.free + out.withheld == out.quota; });
}

void FiringRule::withhold(int out_port, int n) {
  Out& out = outs_[out_port];
  assert(!firing_ && out.withheld + n >= 0 && out.withheld + n < out.quota);
  const bool lacked = out.free < out.need;
  out.free -= n;
  std::atomic_ref(out.withheld).store(out.withheld + n, std::memory_order_relaxed);
  std::atomic_ref(out.least_free).store(out.least_free - n, std::memory_order_relaxed);
  blockers_ += static_cast<int>(out.free < out.need) - static_cast<int>(lacked);
}

std::vector<FiringRule::Wait> FiringRule::waits() const {
  std::vector<Wait> waits;
  if (ended_) return waits;
  if (source_ && credits_ == 0) waits.push_back({false, -1});
  for (const In& in : ins_) {
    if (in.tokens < in.need) waits.push_back({false, in.edge});
  }
  for (const Out& out : outs_) {
    if (out.free < out.need) waits.push_back({true, out.reg});
  }
  return waits;
}

std::string FiringRule::Wait::str(const Plan& plan) const {
  if (index < 0) return "a start credit";
  if (credit) return "a free slot of '" + plan.registers[index].name + "'";
  return "data on '" + plan.registers[plan.edges[index].reg].name + "'";
}

void FiringRule::append_state(std::vector<int>& state) const {
  state.push_back(firing_ | ended_ << 1 | stopped_ << 2);
  state.push_back(static_cast<int>(credits_));
  for (const In& in : ins_) {
    state.push_back(in.tokens);
    state.push_back(in.phase);
    state.push_back(in.owed);
    state.push_back(in.ended);
  }
  for (const Out& out : outs_) {
    state.push_back(out.free);
    state.push_back(out.phase);
    if (out.consumers < 2) continue;
    // Acks awaited, seen from the slot used next: equal states differ by a rotation of the slots.
    for (int i = 0; i < out.quota; ++i) state.push_back(pending_[out.pending + wrap(out.next + i, out.quota)]);
  }
}

}  // namespace sluice::plan
