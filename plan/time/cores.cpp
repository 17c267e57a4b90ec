#include "plan/time/cores.h"

#include <algorithm>
#include <charconv>

namespace sluice::plan {

std::vector<int> cores_of_kernels(const Plan& plan) {
  std::vector<int> cores(plan.kernels.size(), -1);
  for (const Actor& actor : plan.actors) {
    const Stream& stream = plan.streams[actor.stream];
    if (stream.device.kind != DeviceKind::kCpu) continue;
    double all_ns = 0;
    bool timely = true;  // nothing in it may make it wait, and it is known how long it takes
    for (const Instr& i : actor.program) {
      if (i.kind != InstrKind::kRun) continue;
      const Kernel& kernel = plan.kernels[i.index];
      const bool waits = kernel.op == "host_function" || kernel.op == "spill" || kernel.op == "fetch";
      const bool holds = kernel.collective < 0 && !waits;
      cores[i.index] = holds ? stream.cores : 0;
      timely = timely && holds && kernel.cost_ns > 0;
      all_ns += kernel.cost_ns;
    }
    if (!timely || all_ns > kTinyNs) continue;
    for (const Instr& i : actor.program)
      if (i.kind == InstrKind::kRun) cores[i.index] = -1;
  }
  return cores;
}

int cores_of_target(const std::string& target) {
  int fewest = 0;
  for (size_t at = target.find("cpu:0[cores="); at != std::string::npos; at = target.find("cpu:0[cores=", at)) {
    at += std::string("cpu:0[cores=").size();
    int cores = 0;
    std::from_chars(target.data() + at, target.data() + target.size(), cores);
    if (cores > 0) fewest = fewest == 0 ? cores : std::min(fewest, cores);
  }
  return fewest;
}

bool VirtualCores::take(int actor, int n) {
  if (waiting_.empty() && free_ >= clamp(n)) {
    free_ -= clamp(n);
    return true;
  }
  waiting_.push_back({actor, n});
  return false;
}

std::vector<VirtualCores::Waiter> VirtualCores::give(int n) {
  std::vector<Waiter> served;
  free_ += clamp(n);
  while (!waiting_.empty() && free_ >= clamp(waiting_.front().cores)) {
    free_ -= clamp(waiting_.front().cores);
    served.push_back(waiting_.front());
    waiting_.pop_front();
  }
  return served;
}

}  // namespace sluice::plan
