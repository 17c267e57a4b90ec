#pragma once
// Inputs and outputs as callers see them. What the plan has in shards is one port: the whole in a process that runs all
// of the plan, and what a rank has of it in one that runs a rank's part; and it has the rows of all micro-batches.
#include <vector>

#include "plan/plan.h"
#include "plan/shard.h"
#include "runtime/session.h"

namespace sluice {

struct Ports {
  struct Input {
    PortInfo info;
    std::vector<int> of_plan;
    std::vector<plan::Shard> shards;  // of the port, one per input of the plan
  };
  std::vector<Input> inputs;
  std::vector<PortInfo> outputs;
  std::vector<int> output_of;  // per output of the plan; -1: a copy of one that is told already
};

// In the plan's order. Throws kValue for shards that do not make a whole, kUnsupported for outputs in parts.
Ports ports_of(const plan::Plan& plan, const plan::Shards& shards);

}  // namespace sluice
