#include "plan/firing/network.h"

#include <algorithm>
#include <deque>
#include <limits>

namespace sluice::plan {

Network::Network(const Plan& plan)
    : acks(plan.edges.size()),
      plan_(&plan),
      adjacency_(plan),
      ends_(plan.edges.size()),
      out_port_(plan.registers.size()) {
  const int actors = static_cast<int>(plan.actors.size());
  rules.reserve(actors);
  for (int a = 0; a < actors; ++a) {
    rules.emplace_back(plan, adjacency_, a);
    for (size_t port = 0; port < adjacency_.out_registers[a].size(); ++port) {
      const int reg = adjacency_.out_registers[a][port];
      out_port_[reg] = static_cast<int>(port);
      for (const int e : adjacency_.register_edges[reg]) {
        ends_[e].producer = a;
        ends_[e].out_port = static_cast<int>(port);
      }
    }
    for (size_t port = 0; port < adjacency_.in_edges[a].size(); ++port) {
      ends_[adjacency_.in_edges[a][port]].consumer = a;
      ends_[adjacency_.in_edges[a][port]].in_port = static_cast<int>(port);
    }
  }
}

// A firing is the program without its kernels: emits and releases are all that other actors notice. The order of the
// program is kept, since a register in place of an edge must be emitted before that edge's slot goes back.
void Network::fire(int actor, std::vector<int>& touched) {
  DirectDelivery host{*this, touched};
  FiringRule& rule = rules[actor];
  rule.begin();
  for (const Instr& instr : plan_->actors[actor].program) {
    if (instr.kind == InstrKind::kEmit) rule.emit(out_port_[instr.index], host);
    if (instr.kind == InstrKind::kRelease) rule.release(ends_[instr.index].in_port, host);
  }
  rule.finish(host);
  touched.push_back(actor);
}

void Network::blame_register(int reg, const FiringRule::Wait& wait, std::vector<Blame>& blames) const {
  // Slots come free in order: those that have acknowledged least hold the oldest one.
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (const int e : adjacency_.register_edges[reg]) least = std::min(least, acks[e]);
  for (const int e : adjacency_.register_edges[reg]) {
    if (acks[e] != least) continue;
    const int consumer = ends_[e].consumer;
    int in_place = -1;
    for (const int r : adjacency_.out_registers[consumer]) {
      if (plan_->registers[r].in_place_of == e) in_place = r;
    }
    // A deferred ack is owed by those who read the register in place, unless the consumer has not even written it.
    // The consumer has taken a free slot of the register in place: so it has written there, and its readers hold the
    // slot.
    const bool written =
        in_place >= 0 && rules[consumer].free_slots(out_port_[in_place]) < plan_->registers[in_place].quota;
    if (written) {
      blame_register(in_place, wait, blames);
    } else {
      blames.push_back({wait, consumer});
    }
  }
}

std::vector<Network::Blame> Network::blames(int actor) const {
  std::vector<Blame> blames;
  // A missing token is the producer's fault. A missing slot is the fault of those who have not given it back.
  for (const FiringRule::Wait& wait : rules[actor].waits()) {
    if (wait.index < 0) continue;
    if (wait.credit) {
      blame_register(wait.index, wait, blames);
    } else {
      blames.push_back({wait, ends_[wait.index].producer});
    }
  }
  return blames;
}

std::vector<int> Network::state() const {
  std::vector<int> state;
  for (const FiringRule& rule : rules) rule.append_state(state);
  return state;
}

std::vector<int> shortest_cycle(const std::vector<std::vector<int>>& arcs) {
  // Breadth first from every node; the work is bounded, since the first cycles found are already good.
  constexpr int64_t kMaxVisits = 20'000'000;
  const int n = static_cast<int>(arcs.size());
  int64_t visits = 0;
  std::vector<int> best;
  std::vector<int> distance(n), parent(n), seen(n, -1);
  // The shortest cycle through `start` is the shortest path from it back to it. `seen` holds the start for which a node
  // was reached, so that it need not be cleared for each of them.
  for (int start = 0; start < n && best.size() != 1 && visits < kMaxVisits; ++start) {
    std::deque<int> queue{start};
    seen[start] = start;
    distance[start] = 0;
    int closing = -1;
    while (!queue.empty() && closing < 0) {
      const int a = queue.front();
      queue.pop_front();
      // A cycle that is closed from here on would not be shorter than the best one.
      if (!best.empty() && distance[a] + 1 >= static_cast<int>(best.size())) break;
      for (const int next : arcs[a]) {
        ++visits;
        if (next == start) {
          closing = a;
          break;
        }
        if (seen[next] == start) continue;
        seen[next] = start;
        distance[next] = distance[a] + 1;
        parent[next] = a;
        queue.push_back(next);
      }
    }
    if (closing < 0) continue;
    std::vector<int> cycle;
    for (int a = closing; a != start; a = parent[a]) cycle.push_back(a);
    cycle.push_back(start);
    std::reverse(cycle.begin(), cycle.end());
    if (best.empty() || cycle.size() < best.size()) best = cycle;
  }
  return best;
}

std::vector<BlockedHop> shortest_blocking_cycle(const Network& network, const std::vector<int>& left) {
  const int n = network.actors();
  std::vector<std::vector<Network::Blame>> blames(n);
  std::vector<std::vector<int>> arcs(n);
  for (int a = 0; a < n; ++a) {
    // An actor that has done its firings waits for nothing, and an arc to it could not be part of a cycle that blocks.
    if (left[a] == 0) continue;
    blames[a] = network.blames(a);
    for (const Network::Blame& blame : blames[a]) {
      if (left[blame.actor] > 0) arcs[a].push_back(blame.actor);
    }
  }
  const std::vector<int> cycle = shortest_cycle(arcs);
  std::vector<BlockedHop> hops;
  for (size_t i = 0; i < cycle.size(); ++i) {
    const std::vector<Network::Blame>& why = blames[cycle[i]];
    const int next = cycle[(i + 1) % cycle.size()];
    hops.push_back({cycle[i], std::find_if(why.begin(), why.end(), [&](const Network::Blame& b) {
                                return b.actor == next;
                              })->wait});
  }
  return hops;
}

std::string blocking_cycle_str(const Plan& plan, const std::vector<BlockedHop>& cycle) {
  std::string text;
  for (size_t i = 0; i < cycle.size(); ++i) {
    const BlockedHop& hop = cycle[i];
    const std::string& next = plan.actors[cycle[(i + 1) % cycle.size()].actor].name;
    text += fmt::format("{}'{}' waits for {}", i ? "; " : "", plan.actors[hop.actor].name, hop.wait.str(plan));
    text += hop.wait.credit ? fmt::format(" (quota {}) held by '{}'", plan.registers[hop.wait.index].quota, next)
                            : fmt::format(" from '{}'", next);
  }
  return text;
}

// The queue has each actor at most once. An actor that cannot fire leaves it, and comes back when a message reaches it:
// only a message can make it able to fire.
std::vector<int> run_greedily(Network& network, const std::vector<int>& repetitions, std::vector<int>& schedule) {
  std::vector<int> left = repetitions;
  std::vector<int> touched;
  std::vector<bool> queued(left.size(), true);
  std::deque<int> queue;
  for (int a = 0; a < network.actors(); ++a) {
    network.rules[a].on_start(repetitions[a]);
    queue.push_back(a);
  }
  while (!queue.empty()) {
    const int a = queue.front();
    queue.pop_front();
    queued[a] = false;
    if (left[a] == 0 || !network.rules[a].can_fire()) continue;
    touched.clear();
    network.fire(a, touched);
    --left[a];
    schedule.push_back(a);
    for (const int t : touched) {
      if (left[t] == 0 || queued[t] || !network.rules[t].can_fire()) continue;
      queued[t] = true;
      queue.push_back(t);
    }
  }
  return left;
}

}  // namespace sluice::plan
