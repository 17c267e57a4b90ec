#pragma once
// Random plans from a seed: every kind of edge, rate and actor that a plan may have, at random but consistent.
#include <cstdint>

#include "kernels/kernel.h"
#include "plan/plan.h"

namespace sluice::test {

struct RandomPlanOptions {
  int min_actors = 5, max_actors = 30;  // feed and sink included; about, with a device
  int streams = 4;                      // of the host, at most
  bool rates = true;                    // periods of several steps, steps of several firings
  bool sources = true;
  bool feedback = true;
  bool variables = true;
  bool device = false;    // actors on sim:0, with copies to and from it
  bool branches = false;  // case and esac; results may be void
  bool dangling = false;  // actors that lead nowhere: no token of theirs reaches the sink
};

// The plan of a seed. It verifies, has inputs "x0", ... and outputs "y0", ..., and variables "w0", ...; its kernels are
// the host functions of mixes(), "copy", "case" and "esac". Sources feed themselves; their one kernel is "source0", ...
// of mixes(). Tensors are float32 of kN elements; indices are int64 scalars, made by "pick" of mixes().
plan::Plan random_plan(uint64_t seed, const RandomPlanOptions& options = {});

// "mix0" to "mix7" and "source0" to "source2": every element of every output depends on all inputs, in their order,
// without rounding; all values are in [1, 2). Inputs may be outputs.
const HostFunctions& mixes();

}  // namespace sluice::test
