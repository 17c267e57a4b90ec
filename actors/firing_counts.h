#pragma once
// How often each actor of a plan fires for N start credits. By determinacy these numbers do not depend on timing, so
// they say exactly when a run is idle and to which step a firing belongs.
#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace sluice::actors {

class FiringCounts {
 public:
  // Throws kValue when an actor would fire for ever without a start credit, or when nothing ever starts.
  FiringCounts(const plan::Plan& plan, const plan::Adjacency& adjacency);

  // Firings of `actor` once nothing can fire any more, after `steps` start credits to every source and feed.
  uint64_t after(int actor, uint64_t steps) const {
    return steps / period_ * per_period_[actor] + counts_[steps % period_ * per_period_.size() + actor];
  }
  // The first step whose start credit makes firing number `firing` (0, 1, ...) possible.
  uint64_t step_of(int actor, uint64_t firing) const;
  // How many steps must have been submitted before the first of them can be finished by `sink`, at the worst: batches.
  uint64_t least_in_flight(int sink) const;
  uint64_t per_period(int actor) const { return per_period_[actor]; }
  uint64_t period() const { return period_; }

 private:
  uint64_t period_ = 1;               // steps after which the plan is back in its initial state
  std::vector<uint64_t> per_period_;  // firings per actor
  std::vector<uint64_t> counts_;      // [steps][actor] for 0 <= steps <= period
};

}  // namespace sluice::actors
