#pragma once
// A plan in virtual time, under the same FiringRule the runtime uses: streams are serial, kernels take their cost_ns.
// Streams of a host take the cores that their kernels hold as the runtime's do, first come, first served.
// Kernels of branches that a step would not take count like others: which one it takes, data say.
// Collectives wait for all ranks of their group and then take the largest cost_ns of the calls that meet. A plan with
// registers between ranks is simulated through what the ranks do with them: side_by_side() of plan/ranks.h.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace sluice::plan {

struct SimulateOptions {
  int steps = 8;          // submitted: each is `starts` credits of every source and feed
  double firing_ns = 0;   // cost of one firing besides its kernels
  double message_ns = 0;  // latency of a message that crosses streams
  int in_flight = 0;      // steps submitted and not yet at all sinks: 0 = no limit
  int cores = 0;          // of the host of each rank, which its streams share while kernels run: 0 = no limit
  // The time that a kernel takes in a firing of its actor, where that varies; else it is cost_ns.
  std::function<double(int kernel, uint64_t firing)> cost = nullptr;
};

// One hop of the critical cycle: `actor` could not fire before `reason`.
struct CriticalHop {
  int actor = 0;
  enum class Reason : uint8_t { kData, kCredit, kStream, kRanks, kCores, kStart } reason = Reason::kStart;
  int reg = -1;  // kData, kCredit: the register waited for; kRanks: the group
};

struct SimFiring {
  int actor = 0;
  uint64_t firing = 0;  // 0, 1, ... of this actor
  double begin_ns = 0, end_ns = 0;
  CriticalHop ready = {};  // what made the actor ready: kData, kCredit or kStart, or that it still was (kStream)
};
struct SimKernel {
  int kernel = 0;
  int firing = 0;  // index in Simulation::firings
  double begin_ns = 0, end_ns = 0;
  double met_ns = 0;  // of a collective: when all ranks had come; of others: begin_ns, when it had its cores
};

struct Simulation {
  std::vector<SimFiring> firings;  // in order of begin
  std::vector<SimKernel> kernels;
  double total_ns = 0;
  double period_ns = 0;                         // per step, in the steady state
  double steady_from_ns = 0, steady_to_ns = 0;  // whole steps of it; without it all the time
  std::vector<CriticalHop> critical;   // what limits the period, in dataflow order; empty for fewer than 3 steps
  std::vector<int> peak_slots;         // per register: most slots in use at once
  std::vector<double> stream_busy_ns;  // firings, less what they waited for cores, and collectives for other ranks
  bool deadlocked = false;             // some step could not complete
  std::string blocked;                 // what everybody waits for then
};

Simulation simulate(const Plan& plan, const SimulateOptions& options = {});

// The work of a device within the steady time, in shares of it; compute, exposed and bubble add up to one.
struct DeviceUse {
  DeviceId device;
  double compute = 0;        // kernels run
  double communication = 0;  // data is under way: of collectives, once all ranks have come, and of copies
  double exposed = 0;        // of that: while no kernel runs
  double bubble = 0;         // neither
  uint64_t bytes = 0;        // of its memory that loading the plan takes, and nothing later; the host's count for cpu:0
};
// The use of each device. `plan` is the one simulated.
std::vector<DeviceUse> device_use(const Plan& plan, const Simulation& simulation);

// "'feed' -(data 'images')-> 'net' -(stream)-> 'feed'" : who made whom wait, in the order of time.
std::string critical_str(const Plan& plan, const std::vector<CriticalHop>& critical);

}  // namespace sluice::plan
