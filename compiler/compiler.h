#pragma once
// Graph + Target -> Plan.
#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/device_mesh.h"
#include "graph/graph.h"
#include "plan/plan.h"
#include "plan/shard.h"
#include "plan/target.h"
#include "plan/time/machine.h"

namespace sluice {

enum class Granularity { kProgram, kOp };

// Replaces a part that a graph may contain by another that it is to compute instead, both as graphs of one result. The
// inputs of `after` are those of `before`, one by one. Shapes may differ from theirs where attributes do not name them;
// dtypes, ops and attributes are as they stand there. Variables are constants, whose contents are given by name.
struct Pattern {
  using Contents = std::map<std::string, std::vector<std::byte>>;
  std::string name;
  graph::Graph before, after;
  Contents before_constants = {}, after_constants = {};
};

struct CompileOptions {
  std::string name = "plan";
  DeviceId device;  // of nodes that name none
  // In order of priority: a node that names no device runs on the first that has a kernel of its op, on `device` where
  // none has. Empty: all of them on `device`.
  std::vector<DeviceId> devices = {};
  Granularity granularity = Granularity::kProgram;
  int outputs_buffer_size = 2;        // steps in flight: quota of input and output registers
  std::map<std::string, int> quotas;  // by register name; wins over hints and the compiler's choice
  plan::Machine machine = {};         // what kernels are known to take; others take what the target says
  // Slots that make steps faster, by what kernels cost; off: the fewest with which the plan cannot block.
  bool fast_quotas = true;
  bool reuse_memory = true;  // pack buffers by lifetime
  // How: "quick", by greedy orders until one is near the lower bound; "every" of them, and the smallest is taken;
  // "search" for a smaller one, which takes seconds (plan/pack/packing.h, plan/pack/packing_search.h).
  std::string packing = "quick";
  bool in_place = true;
  // Inputs whose memory may become results': an output lies in the slots of such an input, where its actor is the only
  // reader, is done with it, and writes as many bytes. Sessions with zero_copy then need memory for neither (ADR 20).
  std::vector<std::string> donated;
  // Outputs that may have their axes in the order in which they lie, of which plan::Output::axes tells, where to order
  // them otherwise would take a copy: for who hands them on to another plan.
  std::vector<std::string> any_order;
  // Inputs lie in the memory of the device that reads them first, outputs in that of the device that makes them; off:
  // all of them in the host's. Throws kUnsupported for a graph over several devices of a mesh, and for several ranks.
  bool device_ports = false;
  // Variables that steps do not change lie as their kernels read them fastest, in copies made when they are bound or
  // have changed.
  bool pack_weights = true;
  uint64_t memory_budget = 0;  // bytes over all spaces; 0 = none
  // Says how much is computed again to need less memory: "disable", what checkpoints say; "slight", "moderate",
  // "heavy", more (compiler/passes/choose_regions.cpp); "adaptive", the least of these that fits the budget, with one
  // step in flight where that is not enough.
  std::string auto_memory = "disable";
  uint64_t workspace_limit = 0;    // bytes of a kernel's workspace; 0 = none
  bool generated_kernels = false;  // kernels are made for what they compute, where a device can (Target::source)
  bool kernel_trials = false;  // kernels are run at once to find their fastest implementation (Target::implementation)
  int cores = 0;               // of a compute stream; 0 = its part of the target's, less one per host stream
  // Products of float32 matrices, and convolutions, may round their operands: "highest" (never), "high" (to TF32),
  // "medium" (products only: to bfloat16). A kernel decides by itself how it rounds; it sums in float32.
  std::string float32_matmul_precision = "highest", float32_conv_precision = "highest";
  // false: convolutions, or attention, may differ from run to run in their last bits
  bool deterministic_convs = true, deterministic_attention = true;
  std::vector<std::string> disabled_passes;
  // Which activations move into the linear op that feeds them: "exact", relu, which is the same in either place; "all"
  // that its kernel has, whose last bits may differ there.
  std::string activations = "exact";
  // Elementwise ops stay kernels of their own, so that whoever looks at their results can name them.
  bool keep_ops = false;
  // Steps of optimizers: "single", a kernel each; "all", one kernel for many. Scaled ones cast and scale gradients,
  // too.
  std::string updates = "single";
  bool scaled_updates = false;
  bool fuse_add = true;       // additions join what makes one of their operands: products, convolutions, norms, dropout
  bool cast_updates = false;  // steps of optimizers also write what the graph casts their parameters to
  bool prims = false;         // ops that have a decomposition are replaced by it, whether there are kernels or not
  std::vector<Pattern> patterns;  // of the caller, which the pass "patterns" looks for
  // In which kernels of a stream run: "memory", those that free memory as soon as they can; "program", as they were
  // written; by a preference (compiler/lowering/list_order.cpp), "speed", "overlap" or "short_last".
  std::string order = "memory";
  // Actors that may run at the same time, where it is not left to their streams; 0: that is left to them.
  int concurrency = 0;
  // Processes that run the plan of a graph over several devices together. Every process has all of a value that lies on
  // no mesh.
  int ranks = 1;
  std::map<std::string, GlobalPlacement> components;  // inputs and variables of which each rank has what lies on it
  // Says for each module, by its name or that of an outer one, which stage of a pipeline its micro-batches pass there.
  std::map<std::string, int> stages;
  std::string dump_dir;  // IR before and after each pass; "" = SLUICE_DUMP_IR or none
  std::string until;     // stop after this one of stage_names(), with its graph and no plan; "" = make the plan
};

struct PassReport {
  std::string name;
  int rewrites = 0;
  double seconds = 0;
};

// A value brought from lying one way to lying another.
struct Boxing {
  std::string kind;      // "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send", ...; see boxing.h
  std::string module;    // that wants it
  std::string from, to;  // "P on sim:0-1"
  double bytes = 0;      // that travel between devices
};
struct Partition {
  std::vector<plan::Shard> inputs, outputs, shards;  // each in the order of the plan's graph; `shards` are variables
  std::vector<Boxing> boxings;                       // in program order
};

struct CompileResult {
  plan::Plan plan;
  graph::Graph graph;                                       // after the graph passes, or options.until
  std::map<std::string, std::vector<std::byte>> constants;  // made by folding, by variable name
  Partition partition;                                      // of graphs over several devices
  std::vector<PassReport> passes;                           // in order; lowering stages included
  double seconds = 0;
};

// Contents (contiguous) of constant variables, for folding; returns null when unknown.
using ConstantLookup = std::function<const void*(const std::string& name)>;
// Runs one op now on contiguous host data (null: absent) and returns its outputs' bytes. Without one nothing is folded.
using ConstantEvaluator = std::function<std::vector<std::vector<std::byte>>(
    const OpDef& op, const Attrs& attrs, Types types, std::span<const void* const> inputs)>;

// Throws the first error, naming the op and the user's line.
CompileResult compile(graph::Graph graph, const plan::Target& target, const CompileOptions& options,
                      const ConstantLookup& constants = nullptr, const ConstantEvaluator& evaluate = nullptr);

// Names of the graph passes, in order: what `disabled_passes` may name.
std::vector<std::string> pass_names();
// The graph passes, then those of lowering, in the order in which a graph goes through them: what `until` may name.
std::vector<std::string> stage_names();

}  // namespace sluice
