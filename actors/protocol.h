#pragma once
// Checks the messages of one run, under manual stepping, against what the firings at both ends of each edge allow: the
// numbers of firings alone say how many tokens, acks and ends there are, and in which slots. It does not look at the
// counts of the firing rule itself (tokens, free slots, deferred messages), so that a fault there is found.
//
// Invariants of plan/firing/firing.h that it holds the run to
//  1. Conservation: no token or ack arrives that was not due; at rest, none that was due is missing.
//  2. Order: token and ack number k of an edge are of slot k % quota.
//  5. One end per edge, nothing after it.
#include <cstdint>
#include <string>
#include <vector>

#include "actors/message_probe.h"
#include "actors/run_state.h"

namespace sluice::actors {

class Protocol {
 public:
  // REQUIRES: `run` and `nodes` outlive this.
  Protocol(const RunState& run, const std::vector<Node*>& nodes)
      : run_(run), nodes_(nodes), traffic_(run.links.size()) {}

  // Whether `message` may be delivered now. Not after a breach: nothing more is then delivered to the run, so that one
  // error does not become many. REQUIRES: message.edge >= 0; no firing of the run is in progress.
  bool admit(const PendingMessage& message);
  // Looks for messages that were sent and have not arrived. REQUIRES: none is pending.
  void check_rest();
  // `message` is still pending although all actors are done.
  void left_over(const PendingMessage& message);
  // The first breach; "" when there is none.
  const std::string& breach() const { return breach_; }

 private:
  struct Traffic {
    uint64_t tokens = 0, acks = 0;  // delivered
    bool ended = false;
  };
  const plan::Register& reg(int edge) const { return run_.plan->registers[run_.plan->edges[edge].reg]; }
  uint64_t tokens_due(int edge) const;
  uint64_t acks_due(int edge) const;
  uint64_t freed(int reg) const;
  std::string where(int edge) const;
  std::string fault(int edge, ItemKind kind, int slot);

  const RunState& run_;
  const std::vector<Node*>& nodes_;
  std::vector<Traffic> traffic_;  // per edge
  std::string breach_;
};

}  // namespace sluice::actors
