#pragma once
// Tells what limits a plan, and what the plan would gain if that were otherwise.
#include <vector>

#include "plan/time/fast_quotas.h"
#include "plan/time/simulator.h"

namespace sluice::plan {

// Kernels of one signature (plan/time/machine.h), each twice as fast.
struct KernelGain {
  std::vector<int> kernels;
  double cost_ns = 0;    // of all, now, each once
  double period_ns = 0;  // then
};

struct Bottleneck {
  Simulation now;
  std::vector<SlotGain> slots;      // in the order of the critical cycle
  double core_period_ns = 0;        // with one core more for the streams of each host; 0 where cores have no limit
  std::vector<KernelGain> kernels;  // of the actors in it, by what they take; the first 8 signatures
};

// Each gain is what the simulator says of the plan with that change alone, so it holds exactly there.
// REQUIRES: structure, sizes and rates hold.
Bottleneck find_bottleneck(const Plan& plan, const SimulateOptions& options);

}  // namespace sluice::plan
