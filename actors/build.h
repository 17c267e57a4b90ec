#pragma once
// From a plan to the tables its nodes run from.
#include <cstddef>
#include <memory>
#include <vector>

#include "actors/node.h"
#include "actors/run_state.h"

namespace sluice::actors {

// Everything of this process that a plan's indices stand for.
struct Bindings {
  std::vector<StreamExecutor*> streams;        // per plan stream
  std::vector<std::byte*> arenas;              // per arena
  std::vector<std::byte*> variables;           // per variable
  std::vector<std::byte*> packed;              // per packed copy
  std::vector<const PreparedKernel*> kernels;  // per kernel
  std::vector<bool> branches = {};             // per kernel: KernelDef::branches; empty: none has
  std::vector<bool> timely = {};     // per kernel: it takes what is predicted, and waits for nobody; empty: none
  std::vector<bool> exchanged = {};  // per register: its slots' addresses may change; empty: none does
  bool chains = true;                // streams may repeat kernels that follow each other as a whole
  double inline_ns = 0;              // actors predicted to take no longer run where their messages come from
};

// Which of the plan's outputs a sink delivers, in the plan's order.
std::vector<int> outputs_of(const plan::Plan& plan, const plan::Adjacency& adjacency, int actor);

// Fills the tables of `run` that do not concern nodes: slots, statuses, events. Events are made on their streams.
void build_tables(RunState& run, const Bindings& bindings);
// The program of an actor. `*needed` is false when all it does is pass tokens on between host streams.
std::unique_ptr<NodeProgram> make_program(const RunState& run, const Bindings& bindings, int actor, bool* needed);
// The actor's instructions by port, those of a chain's kernels as one. REQUIRES: `program` is the actor's.
Node::Steps make_steps(const RunState& run, const NodeProgram& program, int actor);

}  // namespace sluice::actors
