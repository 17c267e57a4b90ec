#pragma once
// Between graph and plan: kernel calls in a fixed order, on streams, over stores of memory that are not yet placed.
#include <map>
#include <string>
#include <vector>

#include "compiler/compiler.h"
#include "graph/graph.h"
#include "plan/plan.h"
#include "plan/target.h"

namespace sluice::compiler {

// Memory that one task writes, or that a step begins with. Every operand is a window of one store.
struct Store {
  enum class Kind : uint8_t { kTemp, kInput, kVariable };
  Kind kind = Kind::kTemp;
  int index = -1;  // of the graph's input or variable
  int space = 0;   // of Lowered::spaces
  uint64_t bytes = 0;
  std::string name;
  int quota = 0;  // user's hint, 0 = none
  int every = 1;  // of how many micro-batches it holds one value
};

struct Operand {
  int store = -1;       // -1: an absent optional input
  uint64_t offset = 0;  // bytes
  TensorSpec spec;
  int token = 0;  // of a store that has several values for the task
};

// One kernel call.
struct Task : Provenance {
  std::string name, op;
  NamedAttrs attrs;
  std::vector<Operand> inputs, outputs;
  int stream = 0;  // of Lowered::streams
  uint64_t workspace_bytes = 0;
  std::vector<plan::PackedInput> packings = {};  // of whole variables that no task writes, and of what is derived
  // Inputs that are made of such variables: in place of the store, their first, the task reads what is derived.
  std::map<int, plan::Derivation> derived = {};
  std::vector<plan::InPlacePair> in_place;
  double cost_ns = 0;
  bool effectful = false;
  bool source = false;  // it has no inputs, and may say that its data has ended
  // A collective has the ranks that run it together, ascending, and the number of the call, which their tasks share.
  std::vector<int64_t> ranks = {};
  int64_t meeting = -1;
  int every = 1;  // it runs once per so many micro-batches
};

struct Lowered {
  std::vector<plan::Space> spaces;
  std::vector<plan::Stream> streams;
  std::vector<int> stream_space;  // per stream: where its kernels compute
  int host_cores = 0;             // that the streams of a rank share; of the ranks, the fewest
  std::vector<Store> stores;
  std::vector<Task> tasks;          // in an order in which they may run
  std::vector<Operand> outputs;     // of the graph: whole contiguous temporaries, where they are placed
  std::vector<int> variable_store;  // per variable of the graph; -1 when unused
  std::vector<int> feed_streams;    // per rank: of the actor that brings inputs
  std::vector<int> sink_streams;    // per rank: of the actor that hands out outputs
  std::vector<int> writer;          // per variable: the task that writes its new content, or -1
};

struct PassContext;
// A graph that all passes of lowering have been over, node by node.
Lowered lower(const graph::Graph& graph, const PassContext& context);

// Which actor runs each task.
struct Programs {
  std::vector<int> actor_of;             // per task
  std::vector<std::vector<int>> actors;  // tasks of each actor, in order; actors of a stream in their fixed order
  std::vector<int> stream_of;            // per actor
};
Programs make_programs(const Lowered& lowered, Granularity granularity);

// Tasks that must have run before others: data, and reads of a variable ahead of its write; for a collective, those of
// all ranks' tasks of the call, and what comes before these on their streams. Per task, ascending.
std::vector<std::vector<int>> predecessors(const Lowered& lowered);

// Per task: the number of the group of ranks that run it together, or -1.
std::vector<int> meeting_groups(const Lowered& lowered);

// Puts the tasks of micro-batches between those that run once a step. A step of one micro-batch stays as it is.
void order_by_rate(Lowered& lowered);

// Registers, edges, buffers, arenas and instructions.
// `spare_bytes`: that slots may take beyond the fewest, where that makes the plan faster.
plan::Plan build_plan(const graph::Graph& graph, const Lowered& lowered, const Programs& programs,
                      const CompileOptions& options, uint64_t spare_bytes);

}  // namespace sluice::compiler
