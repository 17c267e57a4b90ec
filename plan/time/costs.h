#pragma once
// The times that kernels took when they ran: a history of each signature, for the compiler and for forecasts.
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/trace.h"
#include "plan/target.h"
#include "plan/time/machine.h"

namespace sluice::plan {

KernelSignature signature_of(const KernelQuery& query);

// Histories of the plan's kernels in the runs that `events` tell of, in ascending order. Only kernels on the host are
// measured, since elsewhere a trace has their launches; collectives are not, because they wait for others. Runs far
// from the median of their signature do not count: the first of all, and those that something else of the machine held
// up.
std::vector<KernelHistory> measured_runs(const Plan& plan, std::span<const TraceEvent> events);

// Adds the runs of `more` to a history, as if both were of one.
void merge(std::vector<KernelHistory>& history, std::span<const KernelHistory> more);

// Whether `history`, ascending, has every kernel of the plan that measured_runs() can tell of.
bool has_all(std::span<const KernelHistory> history, const Plan& plan);

// The costs that are known of kernels on a machine. REQUIRES: the machine outlives it.
class CostTable {
 public:
  explicit CostTable(const Machine& machine);
  bool empty() const { return exact_.empty() && patterns_.empty() && measured_.empty(); }
  // The first of machine.kernels whose name fits; otherwise the mean of its signature.
  std::optional<double> find(std::string_view name, const KernelQuery& query) const;
  // The mean of its signature alone, for kernels that have no name yet.
  std::optional<double> measured(const KernelQuery& query) const;

 private:
  std::unordered_map<std::string_view, const KernelCost*> exact_;
  std::vector<const KernelCost*> patterns_;
  std::map<KernelSignature, double> measured_;
};

}  // namespace sluice::plan
