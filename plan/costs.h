#pragma once
// What kernels took when they ran, for the compiler: a file of Machine's form with no links.
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/trace.h"
#include "plan/machine.h"

namespace sluice::plan {

// By name, the median of the runs that `events` tell of, in whole nanoseconds; of kernels on the host, since elsewhere
// a trace has their launches. Those that no event is about alone are left out.
std::vector<KernelCost> measured_costs(const Plan& plan, std::span<const TraceEvent> events);

// Finds the first of some costs that fits a kernel's name. REQUIRES: they outlive this.
class CostTable {
 public:
  explicit CostTable(std::span<const KernelCost> costs);
  const KernelCost* find(std::string_view kernel) const;  // or null

 private:
  std::unordered_map<std::string_view, const KernelCost*> exact_;
  std::vector<const KernelCost*> patterns_;
};

// As machine_from_json() reads it.
std::string to_json(const Machine& machine);

}  // namespace sluice::plan
