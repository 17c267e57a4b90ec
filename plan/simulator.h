#pragma once
// A plan in virtual time, under the same FiringRule the runtime uses: streams are serial, kernels take their cost_ns.
#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace sluice::plan {

struct SimulateOptions {
  int steps = 8;          // start credits of every source and feed
  double firing_ns = 0;   // cost of one firing besides its kernels
  double message_ns = 0;  // latency of a message that crosses streams
  int in_flight = 0;      // steps submitted and not yet at the sink: 0 = no limit
};

struct SimFiring {
  int actor = 0;
  uint64_t firing = 0;  // 0, 1, ... of this actor
  double begin_ns = 0, end_ns = 0;
};
struct SimKernel {
  int kernel = 0;
  int firing = 0;  // index in Simulation::firings
  double begin_ns = 0, end_ns = 0;
};

// One hop of the critical cycle: `actor` could not fire before `reason`.
struct CriticalHop {
  int actor = 0;
  enum class Reason : uint8_t { kData, kCredit, kStream, kStart } reason = Reason::kStart;
  int reg = -1;  // kData, kCredit: the register waited for
};

struct Simulation {
  std::vector<SimFiring> firings;  // in order of begin
  std::vector<SimKernel> kernels;
  double total_ns = 0;
  double period_ns = 0;               // per step, in the steady state
  std::vector<CriticalHop> critical;  // what limits the period, in dataflow order; empty for fewer than 3 steps
  std::vector<int> peak_slots;        // per register: most slots in use at once
  std::vector<double> stream_busy_ns;
  bool deadlocked = false;  // some step could not complete
  std::string blocked;      // what everybody waits for then
};

Simulation simulate(const Plan& plan, const SimulateOptions& options = {});

// "'feed' -(data 'images')-> 'net' -(stream)-> 'feed'" : who made whom wait, in the order of time.
std::string critical_str(const Plan& plan, const std::vector<CriticalHop>& critical);

}  // namespace sluice::plan
