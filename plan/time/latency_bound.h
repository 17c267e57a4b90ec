#pragma once
// A certificate of the worst case: no step takes longer from where it begins to where it ends, if no firing takes
// longer than is said. It follows from quotas alone how far the work of other steps can be ahead.
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace sluice::plan {

// The most that is granted to each actor, in nanoseconds.
struct FiringLimits {
  std::vector<double> firing_ns;  // for a firing, with every wait within it
  std::vector<double> wake_ns;    // from when it could fire until it does, while its stream is in no firing
  std::vector<double>
      start_ns;  // for sources and feeds: from the begin of a step at `from` until the step is started here
};

struct LatencyBound {
  double ns = 0;                                // the sum of what follows; infinite where there is no bound
  double chain_ns = 0;                          // the longest chain of firings on streams of one actor each
  std::vector<std::pair<int, double>> streams;  // shared ones: all that they can do while the step is on its way
  int unheld = -1;  // where there is no bound: an actor of a shared stream that nothing of the way holds back
};

// From the begin of the first firing of a step at `from`, a source or feed, to the end of the last one at the sink
// `to`.
//
// A firing depends on others: its actor's one before, those that made its values, and those that gave its slots back.
// When the step begins at `from`, all on which that firing depends have begun, and only the last one of each actor can
// still be running. All else that the sink depends on follows in chains, and each moment of the longest one is in a
// firing of the chain, or on its way to begin, or in another firing of a stream that actors share. Those others are
// counted: all that do not depend on the sink's firing themselves. Throws kUnsupported for a plan with collectives,
// whose waits other ranks decide. REQUIRES: verified.
LatencyBound latency_bound(const Plan& plan, int from, int to, const FiringLimits& limits);

}  // namespace sluice::plan
