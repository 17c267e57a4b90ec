#include "tools/plan_viz/ranks_view.h"

#include <map>
#include <set>

#include "base/shape.h"
#include "plan/meetings.h"
#include "plan/verify.h"

namespace sluice::plan_viz {

using namespace plan;

namespace {

int rank_of(const Plan& plan, int actor) { return plan.streams[plan.actors[actor].stream].device.rank; }

}  // namespace

Groups groups_of(const Plan& plan) {
  Groups result;
  std::map<int, std::set<int>> ranks;
  for (int a = 0; a < static_cast<int>(plan.actors.size()); ++a) {
    for (const Instr& i : plan.actors[a].program) {
      if (i.kind == InstrKind::kRun && plan.kernels[i.index].collective >= 0)
        ranks[plan.kernels[i.index].collective].insert(rank_of(plan, a));
    }
  }
  if (ranks.empty()) return result;
  std::map<int, Group> groups;
  for (const auto& [number, members] : ranks) groups[number] = {number, {members.begin(), members.end()}, {}};
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
