#include "plan/time/bottleneck.h"

#include <algorithm>
#include <map>

#include "plan/query.h"
#include "plan/time/costs.h"

namespace sluice::plan {
namespace {

constexpr size_t kMostKernels = 8;  // each costs a simulation

// Kernels that take time, of the actors that the critical cycle goes through, by signature; the longest first.
std::vector<KernelGain> critical_kernels(const Plan& plan, const Simulation& simulation) {
  std::vector<bool> critical(plan.actors.size(), false);
  for (const CriticalHop& hop : simulation.critical) critical[hop.actor] = true;
  std::map<KernelSignature, KernelGain> by_signature;
  for (size_t a = 0; a < plan.actors.size(); ++a) {
    if (!critical[a]) continue;
    for (const Instr& instr : plan.actors[a].program) {
      if (instr.kind != InstrKind::kRun || plan.kernels[instr.index].cost_ns <= 0) continue;
      const Kernel& kernel = plan.kernels[instr.index];
      KernelGain& gain = by_signature[signature_of(query_of(plan, kernel, plan.streams[plan.actors[a].stream]))];
      gain.kernels.push_back(instr.index);
      gain.cost_ns += kernel.cost_ns;
    }
  }
  std::vector<KernelGain> kernels;
  for (auto& [signature, gain] : by_signature) kernels.push_back(std::move(gain));
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const KernelGain& a, const KernelGain& b) { return a.cost_ns > b.cost_ns; });
  if (kernels.size() > kMostKernels) kernels.resize(kMostKernels);
  return kernels;
}

}  // namespace

Bottleneck find_bottleneck(const Plan& plan, const SimulateOptions& options) {
  Bottleneck found;
  found.now = simulate(plan, options);
  if (found.now.deadlocked || found.now.critical.empty()) return found;
  found.slots = slot_gains(plan, found.now, options);
  if (options.cores > 0) {
    SimulateOptions more = options;
    ++more.cores;
    found.core_period_ns = simulate(plan, more).period_ns;
  }
  found.kernels = critical_kernels(plan, found.now);
  for (KernelGain& gain : found.kernels) {
    Plan faster = plan;
    for (const int kernel : gain.kernels) faster.kernels[kernel].cost_ns /= 2;
    gain.period_ns = simulate(faster, options).period_ns;
  }
  return found;
}

}  // namespace sluice::plan
