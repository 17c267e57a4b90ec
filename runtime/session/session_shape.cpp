#include "runtime/session/session_shape.h"

#include <algorithm>
#include <climits>

#include "actors/runner.h"

namespace sluice {
namespace {

using plan::ActorRole;

// How fast results are copied, about.
constexpr double kBytesPerNs = 8;

// A step that takes longer is worth that its caller makes itself another team of threads, if it needs one again.
constexpr double kWorthATeamNs = 2e6;

// The longest time that one of its actors is predicted to compute on several cores.
double longest_on_several_cores_ns(const plan::Plan& plan) {
  double longest = 0;
  for (const plan::Actor& actor : plan.actors) {
    double cost_ns = 0;
    for (const plan::Instr& instr : actor.program)
      if (instr.kind == plan::InstrKind::kRun) cost_ns += plan.kernels[instr.index].cost_ns;
    if (plan.streams[actor.stream].cores > 1) longest = std::max(longest, cost_ns);
  }
  return longest;
}

// Finds feeds and sinks. Returns how many steps have slots for what they begin with: inputs, or what sources make.
int find_ends(SessionShape& shape, const plan::Plan& plan, const actors::Runner& runner) {
  int room = INT_MAX, ahead = INT_MAX;  // steps that have their slots, at feeds; at sources
  shape.outputs.resize(plan.actors.size());
  for (int a = 0; a < static_cast<int>(plan.actors.size()); ++a) {
    const plan::Actor& actor = plan.actors[a];
    if (actor.role == ActorRole::kSink) {
      shape.sinks.push_back(
          {a, static_cast<uint64_t>(firings_per_step(runner.counts(), a)), runner.counts().per_period(a)});
      shape.outputs[a] = actors::outputs_of(plan, runner.adjacency(), a);
    }
    if (!is_started(actor)) continue;
    int& steps = actor.role == ActorRole::kFeed ? room : ahead;
    for (const int r : runner.adjacency().out_registers[a]) {
      steps = std::min(steps, plan.registers[r].quota / actor.starts);
      if (actor.role == ActorRole::kFeed) shape.fed.push_back({r, static_cast<uint64_t>(actor.starts)});
    }
  }
  if (room != INT_MAX) return room;
  return ahead == INT_MAX ? 1 : std::max(1, ahead);
}

// Steps that must be in flight, by this plan and, where it is one rank's part, by the whole.
int least_in_flight(const LoadedPlan& loaded, const SessionShape& shape, const plan::FiringCounts& counts) {
  uint64_t least = loaded.least_in_flight;
  for (const SinkProgress::Sink& sink : shape.sinks) least = std::max(least, counts.least_in_flight(sink.actor));
  return static_cast<int>(least);
}

}  // namespace

SessionShape shape_of(const LoadedPlan& loaded, const actors::Runner& runner, bool manual) {
  const plan::Plan& plan = loaded.plan;
  SessionShape shape;
  const int room = find_ends(shape, plan, runner);
  const int least = least_in_flight(loaded, shape, runner.counts());
  const int asked = loaded.options.max_in_flight;
  shape.max_in_flight = asked > 0 ? asked : std::max(room, least);
  SLUICE_CHECK(shape.max_in_flight >= least,
               "session '{}': max_in_flight: {}; the plan finishes a step only once {} are in flight, so it must be at "
               "least that",
               plan.name, shape.max_in_flight, least);
  if (!shape.fed.empty() && shape.max_in_flight > room) shape.backlog = static_cast<size_t>(shape.max_in_flight - room);
  uint64_t bytes = 0;
  for (const plan::Output& output : plan.outputs) bytes += output.view.spec.extent_bytes();
  const SessionOptions& options = loaded.options;
  shape.brief_sinks = (!options.on_output || options.on_output_inline) &&
                      static_cast<double>(bytes) <= kBytesPerNs * loaded.bindings.inline_ns;
  const double computes_ns = longest_on_several_cores_ns(plan);
  shape.computes_elsewhere = !manual && computes_ns > loaded.bindings.inline_ns;
  shape.computes_long = computes_ns > kWorthATeamNs;
  shape.lends_outputs = std::any_of(loaded.ports.outputs.begin(), loaded.ports.outputs.end(),
                                    [](const PortInfo& port) { return port.copied.empty(); });
  for (const actors::Node* node : runner.nodes()) {
    if (node->touches_variables()) shape.touching.push_back(node->actor());
    if (node->writes_variables()) shape.writing.push_back(node->actor());
  }
  return shape;
}

}  // namespace sluice
