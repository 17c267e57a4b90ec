// The kernels that ran in a recorded run, one by one, as records for other programs.
#include <utility>

#include "plan/json/json.h"
#include "tools/plan_viz/summary.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {

using namespace plan;

std::string tasks_json(const Recording& recording) {
  const Plan& plan = recording.plan;
  const Adjacency adjacency(plan);
  std::string s =
      fmt::format("{{\"name\": {}, \"lost\": {}, \"tasks\": [", quoted_json(plan.name), recording.trace.lost);
  const char* comma = "";
  for (const TraceEvent& e : recording.trace.events) {
    if (e.wait || e.left_out || e.kernel < 0 || e.actor < 0) continue;
    const Kernel& kernel = plan.kernels[e.kernel];
    s += fmt::format(
        "{}\n  {{\"kernel\": {}, \"op\": {}, \"kernels\": {}, \"actor\": {}, \"stream\": {}, \"device\": \"{}\", "
        "\"step\": "
        "{}, \"begin_ns\": {}, \"end_ns\": {}, \"bytes\": {}, \"takes\": [",
        std::exchange(comma, ","), quoted_json(kernel.name), quoted_json(kernel.op), e.kernels,
        quoted_json(plan.actors[e.actor].name), quoted_json(plan.streams[e.stream].name),
        plan.streams[e.stream].device.str(), e.step, e.begin_ns, e.end_ns, bytes_of(kernel));
    const char* inner = "";
    for (const int edge : adjacency.in_edges[e.actor])
      s += std::exchange(inner, ", ") + quoted_json(plan.registers[plan.edges[edge].reg].name);
    s += "], \"moves\": [";
    inner = "";
    for (const Move& move : moves_of(plan, kernel))
      s += fmt::format("{}{{\"from\": {}, \"to\": {}, \"bytes\": {}}}", std::exchange(inner, ", "),
                       quoted_json(plan.spaces[move.from].str()), quoted_json(plan.spaces[move.to].str()), move.bytes);
    s += "]}";
  }
  return s + "]}\n";
}

}  // namespace sluice::plan_viz
