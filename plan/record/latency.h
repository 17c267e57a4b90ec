#pragma once
// How long the steps of a recorded run took, from each actor that begins them to each sink that ends them.
#include <cstdint>
#include <vector>

#include "plan/record/timeline.h"
#include "plan/time/latency_bound.h"

namespace sluice::plan {

struct PathLatency {
  int from = 0, to = 0;  // actors: a source or feed, and a sink that its tokens reach
  size_t steps = 0;      // recorded at both ends
  int64_t min_ns = 0, p50_ns = 0, p99_ns = 0, max_ns = 0;
  double mean_ns = 0;
};

// The times that firings of a recorded run took, and what passed before they began: of each actor the `quantile` (1:
// the most). `from`: where steps begin.
FiringLimits measured_limits(const Plan& plan, const Timeline& timeline, int from, double quantile);

// From the begin of the first firing of a step at one end to the end of the step's last firing at the other.
std::vector<PathLatency> latencies_of(const Plan& plan, const Timeline& timeline);

}  // namespace sluice::plan
