#pragma once
// A plan without time.
#include <deque>
#include <vector>

#include "plan/firing/network.h"

namespace sluice::plan {

// Whatever can fire does, until nothing can. By determinacy the order does not matter.
class Untimed {
 public:
  // REQUIRES: as of Network. Throws kValue where more than `most` firings happen in all.
  Untimed(const Plan& plan, uint64_t most) : network_(plan), queued_(plan.actors.size()), left_(most) {
    for (int a = 0; a < network_.actors(); ++a) enqueue(a);
  }

  const Network& network() const { return network_; }

  // The start credits of a step for one feed or source.
  void start(int actor) {
    network_.rules[actor].on_start(static_cast<uint64_t>(network_.plan().actors[actor].starts));
    enqueue(actor);
  }
  // Calls fired(actor) for each firing.
  template <class Fired>
  void exhaust(Fired fired) {
    while (!queue_.empty()) {
      const int a = queue_.front();
      queue_.pop_front();
      queued_[a] = false;
      while (network_.rules[a].can_fire()) {
        SLUICE_CHECK(left_ > 0,
                     "plan '{}': actor '{}' fires without end; every actor must depend on a feed or a source",
                     network_.plan().name, network_.plan().actors[a].name);
        --left_;
        touched_.clear();
        network_.fire(a, touched_);
        fired(a);
        for (const int t : touched_) enqueue(t);
      }
    }
  }

 private:
  void enqueue(int a) {
    if (queued_[a] || !network_.rules[a].can_fire()) return;
    queued_[a] = true;
    queue_.push_back(a);
  }

  Network network_;
  std::deque<int> queue_;
  std::vector<bool> queued_;
  std::vector<int> touched_;
  uint64_t left_;
};

}  // namespace sluice::plan
