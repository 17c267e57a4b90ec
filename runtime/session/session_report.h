#pragma once
// Puts together what a session tells of itself: memory, counters.
#include <memory>
#include <vector>

#include "actors/runner.h"
#include "runtime/session/session.h"
#include "runtime/session/step_ports.h"

namespace sluice {

// `arena_shared`, `variable_mapped`: per arena, per variable of the plan.
SessionMemory memory_of(const plan::Plan& plan, const std::vector<bool>& arena_shared,
                        const std::vector<bool>& variable_mapped, const StepPorts& ports, int max_in_flight);

// The bytes that `memory` sums up, and what the actors, streams, kernels and registers have counted. `streams`: per
// stream of the plan; `kernels`: per kernel, null where this process does not run it. REQUIRES: all of them stay.
void add_counters(SessionStats& stats, const plan::Plan& plan, const SessionMemory& memory, actors::Runner& runner,
                  const std::vector<std::shared_ptr<actors::StreamExecutor>>& streams,
                  const std::vector<const PreparedKernel*>& kernels);

}  // namespace sluice
