#include "plan/firing/firing_counts.h"

#include <algorithm>

#include "base/shape.h"
#include "plan/firing/untimed.h"
#include "plan/verify.h"

namespace sluice::plan {
FiringCounts::FiringCounts(const Plan& plan) : actors_(plan.actors.size()) {
  const std::vector<int> repetitions = repetition_vector(plan);
  uint64_t total = 0, initial = 0;
  for (size_t a = 0; a < actors_.size(); ++a) {
    actors_[a].per_period = static_cast<uint64_t>(repetitions[a]);
    actors_[a].first = total;
    total = checked_add(total, actors_[a].per_period);
  }
  SLUICE_CHECK(std::any_of(plan.actors.begin(), plan.actors.end(), is_started),
               "plan '{}': no actor ever starts: there is no feed and no source; a plan needs one", plan.name);
  period_ = static_cast<uint64_t>(steps_of_period(plan, repetitions));
  for (const Register& reg : plan.registers) initial = checked_add(initial, static_cast<uint64_t>(reg.initial_tokens));
  // Tokens present at the start let actors run ahead, at most by a period each.
  const uint64_t limit = checked_mul(total, checked_add(checked_add(period_, initial), 1));
  step_of_.resize(total);
  Untimed run(plan, limit);
  run.exhaust([&](int a) { ++actors_[a].before; });
  std::vector<uint64_t> seen(actors_.size());  // of the period's firings
  for (uint64_t step = 0; step < period_; ++step) {
    for (int a = 0; a < static_cast<int>(plan.actors.size()); ++a) {
      if (is_started(plan.actors[a])) run.start(a);
    }
    run.exhaust([&](int a) {
      if (seen[a] < actors_[a].per_period) step_of_[actors_[a].first + seen[a]++] = static_cast<uint32_t>(step);
    });
  }
}

uint64_t FiringCounts::after(int actor, uint64_t steps) const {
  const Actor& a = actors_[actor];
  const auto first = step_of_.begin() + static_cast<std::ptrdiff_t>(a.first);
  const auto last = first + static_cast<std::ptrdiff_t>(a.per_period);
  const auto end = std::lower_bound(first, last, static_cast<uint32_t>(steps % period_));
  return a.before + steps / period_ * a.per_period + static_cast<uint64_t>(end - first);
}

uint64_t FiringCounts::least_in_flight(int sink) const {
  uint64_t least = 1, submitted = 1;
  const uint64_t firings = per_period(sink);
  for (uint64_t step = 0; step < period_; ++step) {
    // The sink's firing that answers the step; of several, the last.
    const uint64_t answer = firings > period_ ? (step + 1) * (firings / period_) - 1 : step * firings / period_;
    while (submitted < period_ && after(sink, submitted) <= answer) ++submitted;
    if (submitted > step) least = std::max(least, submitted - step);
  }
  return least;
}

}  // namespace sluice::plan
