#include "tools/plan_viz/ranks_view.h"

#include <map>
#include <set>

#include "base/shape.h"
#include "plan/ranks.h"
#include "plan/verify.h"
#include "plan/verify/meetings.h"

namespace sluice::plan_viz {

using namespace plan;

Groups groups_of(const Plan& plan) {
  Groups result;
  std::map<int, Group> groups;
  for (auto& [number, ranks] : ranks_of_groups(plan)) groups[number] = {number, ranks, {}};
  if (groups.empty()) return result;
  VerifyReport report;
  verify_rates(plan, report);
  if (report.ok()) verify_liveness(plan, report);
  if (report.ok()) {
    const Meetings meetings(plan, report.repetitions, 1);
    for (const std::vector<int>& meeting : meetings.meetings()) {
      Call call;
      for (const int c : meeting) call.kernels.push_back(meetings.calls()[c].kernel);
      const Kernel& k = plan.kernels[call.kernels[0]];
      call.op = k.op;
      for (const View& v : k.inputs) call.bytes += checked_bytes(v.spec.shape, dtype_size(v.spec.dtype));
      groups[k.collective].calls.push_back(std::move(call));
    }
    if (!meetings.finished()) verify_collectives(plan, report);
  }
  if (!report.ok()) result.problem = report.problems[0].text;
  for (auto& [number, group] : groups) result.groups.push_back(std::move(group));
  return result;
}

std::vector<Crossing> crossings_of(const Plan& plan) {
  const Adjacency adjacency(plan);
  std::vector<Crossing> crossings;
  for (int r = 0; r < static_cast<int>(plan.registers.size()); ++r) {
    const int from = rank_of(plan, plan.registers[r].producer);
    std::set<int> to;
    for (const int e : adjacency.register_edges[r]) to.insert(rank_of(plan, plan.edges[e].consumer));
    to.erase(from);
    if (!to.empty()) crossings.push_back({r, from, {to.begin(), to.end()}});
  }
  return crossings;
}

}  // namespace sluice::plan_viz
