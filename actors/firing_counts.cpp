#include "actors/firing_counts.h"

#include <algorithm>
#include <deque>

#include "plan/firing.h"
#include "plan/verify.h"

namespace sluice::actors {
namespace {

using plan::ActorRole;
using plan::Adjacency;
using plan::FiringRule;
using plan::Instr;
using plan::InstrKind;
using plan::Plan;

// Runs the firing rule of all actors with no time and no kernels.
class Untimed {
 public:
  Untimed(const Plan& plan, const Adjacency& adjacency) : plan_(plan) {
    in_port_.resize(plan.edges.size());
    out_port_.resize(plan.registers.size());
    for (int a = 0; a < static_cast<int>(plan.actors.size()); ++a) {
      rules_.emplace_back(plan, adjacency, a);
      for (size_t p = 0; p < adjacency.in_edges[a].size(); ++p)
        in_port_[adjacency.in_edges[a][p]] = static_cast<int>(p);
      for (size_t p = 0; p < adjacency.out_registers[a].size(); ++p) {
        out_port_[adjacency.out_registers[a][p]] = static_cast<int>(p);
      }
    }
  }

  // Fires until nothing can; throws when that takes more than `limit` firings.
  void exhaust(uint64_t limit) {
    for (int a = 0; a < static_cast<int>(rules_.size()); ++a) fire(a, limit);
    while (!messages_.empty()) {
      const Message m = messages_.front();
      messages_.pop_front();
      const plan::Edge& edge = plan_.edges[m.edge];
      const int actor = m.ready ? edge.consumer : plan_.registers[edge.reg].producer;
      if (m.ready) {
        rules_[actor].on_ready(in_port_[m.edge], m.slot, *this);
      } else {
        rules_[actor].on_ack(out_port_[edge.reg], m.slot, *this);
      }
      fire(actor, limit);
    }
  }
  void start() {
    for (size_t a = 0; a < rules_.size(); ++a) {
      const ActorRole role = plan_.actors[a].role;
      if (role == ActorRole::kSource || role == ActorRole::kFeed) rules_[a].on_start(1);
    }
  }
  void append_counts(std::vector<uint64_t>& counts) const {
    for (const FiringRule& rule : rules_) counts.push_back(rule.firings());
  }

  void ready(int edge, int slot) { messages_.push_back({edge, slot, true}); }
  void ack(int edge, int slot) { messages_.push_back({edge, slot, false}); }
  void end(int) {}

 private:
  struct Message {
    int edge, slot;
    bool ready;
  };

  void fire(int a, uint64_t limit) {
    FiringRule& rule = rules_[a];
    while (rule.can_fire()) {
      SLUICE_CHECK(++fired_ <= limit,
                   "plan '{}': actor '{}' fires without end; every actor must depend on a feed or a source", plan_.name,
                   plan_.actors[a].name);
      rule.begin();
      for (const Instr& instr : plan_.actors[a].program) {
        if (instr.kind == InstrKind::kEmit) rule.emit(out_port_[instr.index], *this);
        if (instr.kind == InstrKind::kRelease) rule.release(in_port_[instr.index], *this);
      }
      rule.finish(*this);
    }
  }

  const Plan& plan_;
  std::vector<FiringRule> rules_;
  std::vector<int> in_port_, out_port_;
  std::deque<Message> messages_;
  uint64_t fired_ = 0;
};

}  // namespace

FiringCounts::FiringCounts(const Plan& plan, const Adjacency& adjacency) {
  const std::vector<int> repetitions = plan::repetition_vector(plan);
  per_period_.assign(repetitions.begin(), repetitions.end());
  bool starts = false;
  uint64_t total = 0, initial = 0;
  for (size_t a = 0; a < plan.actors.size(); ++a) {
    total = checked_add(total, per_period_[a]);
    const ActorRole role = plan.actors[a].role;
    if (role != ActorRole::kSource && role != ActorRole::kFeed) continue;
    starts = true;
    period_ = per_period_[a];
  }
  SLUICE_CHECK(starts, "plan '{}': no actor ever starts: there is no feed and no source; a plan needs one", plan.name);
  for (const plan::Register& reg : plan.registers)
    initial = checked_add(initial, static_cast<uint64_t>(reg.initial_tokens));
  // Tokens present at the start let actors run ahead, at most by a period each.
  const uint64_t limit = checked_mul(total, checked_add(checked_add(period_, initial), 1));
  Untimed run(plan, adjacency);
  run.exhaust(limit);
  run.append_counts(counts_);
  for (uint64_t n = 0; n < period_; ++n) {
    run.start();
    run.exhaust(limit);
    run.append_counts(counts_);
  }
}

uint64_t FiringCounts::step_of(int actor, uint64_t firing) const {
  const uint64_t before = counts_[actor];  // possible without any credit
  if (firing < before) return 0;
  const uint64_t per = per_period_[actor];
  const uint64_t periods = (firing - before) / per;
  if (period_ == 1) return periods;
  const uint64_t rest = firing - periods * per;
  uint64_t n = 1;
  while (n < period_ && counts_[n * per_period_.size() + actor] <= rest) ++n;
  return periods * period_ + n - 1;
}

uint64_t FiringCounts::least_in_flight(int sink) const {
  uint64_t least = 1, submitted = 1;
  for (uint64_t step = 0; step < period_; ++step) {
    const uint64_t answer = step * per_period_[sink] / period_;  // the sink's firing that answers the step
    while (submitted < period_ && after(sink, submitted) <= answer) ++submitted;
    if (submitted > step) least = std::max(least, submitted - step);
  }
  return least;
}

}  // namespace sluice::actors
