#pragma once
// How often each actor of a plan fires for N steps. By determinacy these numbers do not depend on timing, so
// they say exactly when a run is idle and to which step a firing belongs.
#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace sluice::plan {

class FiringCounts {
 public:
  // REQUIRES: structure and rates hold. Throws kValue when an actor would fire for ever without a start credit, or when
  // nothing ever starts.
  explicit FiringCounts(const Plan& plan);

  // Firings of `actor` once nothing can fire any more, after the start credits of `steps` steps.
  uint64_t after(int actor, uint64_t steps) const;
  // The first step whose start credits make firing number `firing` (0, 1, ...) possible.
  uint64_t step_of(int actor, uint64_t firing) const {
    const Actor& a = actors_[actor];
    if (firing < a.before) return 0;
    const uint64_t nth = firing - a.before;
    return nth / a.per_period * period_ + step_of_[a.first + nth % a.per_period];
  }
  // How many steps must have been submitted before the first of them can be finished by `sink`, at the worst: batches.
  uint64_t least_in_flight(int sink) const;
  uint64_t per_period(int actor) const { return actors_[actor].per_period; }
  uint64_t period() const { return period_; }

 private:
  struct Actor {
    uint64_t per_period = 1;  // firings
    uint64_t before = 0;      // firings that need no start credit
    size_t first = 0;         // of its firings of one period in step_of_, where there are per_period
  };
  uint64_t period_ = 1;  // steps after which the plan is back in its initial state
  std::vector<Actor> actors_;
  std::vector<uint32_t> step_of_;
};

}  // namespace sluice::plan
