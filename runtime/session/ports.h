#pragma once
// Inputs and outputs as callers see them. A value that the plan has in shards is one port: the whole in a process that
// runs all of the plan, and the rank's component in one that runs a rank's part; and it has the rows of all firings of
// a step.
#include <memory>
#include <string>
#include <vector>

#include "plan/extents.h"
#include "plan/firing/firing_counts.h"
#include "plan/plan.h"
#include "plan/shard.h"
#include "runtime/session/session.h"

namespace sluice {

struct Ports {
  struct Input {
    PortInfo info;
    std::vector<int> of_plan;
    std::vector<plan::Shard> shards;  // of the port, one per input of the plan
    int64_t parts = 1;                // a firing of its feed gets one
  };
  std::vector<Input> inputs;
  std::vector<PortInfo> outputs;
  std::vector<int> output_of;  // per output of the plan; -1: a copy of one that is told already, or an extent
  // An axis of an output that varies in length (plan/extents.h).
  struct Varying {
    int port = 0, axis = 0;
    std::string dim;
    int of_plan = 0;  // the plan's output that tells how long it is
  };
  std::shared_ptr<const std::vector<Varying>> varying;  // by port and axis; null where none does
};

// The plan's outputs as callers call them.
std::vector<plan::NamedType> named_outputs(const plan::Plan& plan, const plan::Shards& shards);

// Throws kValue or kType, naming the argument, where it is of another type than the graph was compiled for. Nobody else
// looks at the types of a call's arguments: a session does for its ports, and whoever has more arguments than ports for
// the others.
void check_argument(const std::string& graph, const std::string& name, const TensorType& expected,
                    const TensorSpec& got);

// How often a sink fires for a step; 1 also where it answers several at once.
int64_t firings_per_step(const plan::FiringCounts& counts, int sink);

// In the plan's order. Throws kValue for shards that do not make a whole, kUnsupported for outputs in parts.
Ports ports_of(const plan::Plan& plan, const plan::FiringCounts& counts, const plan::Shards& shards);

}  // namespace sluice
