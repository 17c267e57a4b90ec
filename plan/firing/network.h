#pragma once
// All firing rules of a plan, joined by direct delivery: what schedules, quotas, simulations and tests run on.
#include <string>
#include <vector>

#include "plan/firing/firing.h"
#include "plan/plan.h"

namespace sluice::plan {

class Network {
 public:
  // REQUIRES: verify()'s structure check holds; `plan` outlives this.
  explicit Network(const Plan& plan);

  // The ports at which an edge begins and ends.
  struct Ends {
    int producer = 0, out_port = 0;
    int consumer = 0, in_port = 0;
  };
  const Plan& plan() const { return *plan_; }
  const Adjacency& adjacency() const { return adjacency_; }
  const Ends& ends(int edge) const { return ends_[edge]; }
  int out_port(int reg) const { return out_port_[reg]; }
  int actors() const { return static_cast<int>(rules.size()); }

  std::vector<FiringRule> rules;  // per actor
  std::vector<uint64_t> acks;     // per edge, since the start

  // One whole firing with immediate delivery. REQUIRES: rules[actor].can_fire().
  // `touched` receives every actor a message went to.
  void fire(int actor, std::vector<int>& touched);

  // Why a stuck actor cannot fire: each pair is a wait and the actor to blame for it.
  struct Blame {
    FiringRule::Wait wait;
    int actor = 0;
  };
  std::vector<Blame> blames(int actor) const;

  // The future of every actor in numbers; see FiringRule::append_state.
  std::vector<int> state() const;

 private:
  void blame_register(int reg, const FiringRule::Wait& wait, std::vector<Blame>& blames) const;

  const Plan* plan_;
  Adjacency adjacency_;
  std::vector<Ends> ends_;
  std::vector<int> out_port_;  // per register
};

// Delivers at once what a firing rule tells the others, and remembers whom it told.
struct DirectDelivery {
  Network& network;
  std::vector<int>& touched;
  void ready(int edge, int slot) {
    const Network::Ends& ends = network.ends(edge);
    network.rules[ends.consumer].on_ready(ends.in_port, slot, *this);
    touched.push_back(ends.consumer);
  }
  void ack(int edge, int slot) {
    const Network::Ends& ends = network.ends(edge);
    ++network.acks[edge];
    network.rules[ends.producer].on_ack(ends.out_port, slot, *this);
    touched.push_back(ends.producer);
  }
  void end(int edge) {
    const Network::Ends& ends = network.ends(edge);
    network.rules[ends.consumer].on_end(ends.in_port, *this);
    touched.push_back(ends.consumer);
  }
};

// Fires every actor `repetitions` times, greedily; appends to `schedule` in order. Exact: firing one actor never
// disables another, so what is left over cannot fire in any order. Returns the firings left per actor.
std::vector<int> run_greedily(Network& network, const std::vector<int>& repetitions, std::vector<int>& schedule);

// Nodes of the shortest cycle of a graph given by its arcs; empty when there is none.
std::vector<int> shortest_cycle(const std::vector<std::vector<int>>& arcs);

// One hop: `actor` waits, the next hop's actor is to blame.
struct BlockedHop {
  int actor = 0;
  FiringRule::Wait wait;
};
// The shortest cycle of waits among actors with firings left; empty when there is none.
std::vector<BlockedHop> shortest_blocking_cycle(const Network& network, const std::vector<int>& left);
std::string blocking_cycle_str(const Plan& plan, const std::vector<BlockedHop>& cycle);

// Does firing `k` of actor `a` always precede firing `m` of actor `b` (counted from 0 at the start)? Exact, by running
// everything else with `a` held back; a direct dependency is seen at once.
class FixedOrder {
 public:
  explicit FixedOrder(const Plan& plan);
  bool precedes(int a, int64_t k, int b, int64_t m);

 private:
  const Plan& plan_;
  Network initial_;
  std::vector<int> component_;  // per actor
  int64_t work_ = 0;            // firings spent on searches; bounded
};

}  // namespace sluice::plan
