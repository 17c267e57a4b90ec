#pragma once
// Graph passes: each one file in compiler/passes/, named in one explicit list.
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiler/compiler.h"
#include "graph/graph.h"
#include "plan/target.h"

namespace sluice::compiler {

class Section;

struct PassContext {
  const plan::Target& target;
  const CompileOptions& options;
  const ConstantLookup& lookup;
  const ConstantEvaluator& evaluate;
  std::map<std::string, std::vector<std::byte>>& constants;  // made so far, by variable name
  Partition& partition;
  std::map<graph::Placement, int> cores = {};  // of streams, which placement says; 1 of the others
  int fused_adds = 0;                          // additions that have become a part of what makes one of their operands
  std::map<std::string, int> applied = {};     // how often each of the caller's patterns was found
  Offload offload = {};                        // what pass "offload" has found
  const Section* section = nullptr;            // the ranks of which nodes are made; null: of all (rank_classes.h)

  // The device on which a node runs, or would run by the order of devices.
  DeviceId device_of(const graph::Node& node) const { return device_for(*node.op, node.placement); }
  DeviceId device_for(const OpDef& op, const graph::Placement& placement) const;
  // Has the device a kernel that runs the op: its own, or the one that it is compiled to.
  bool has_kernel(const OpDef& op, DeviceKind kind) const;
  // The question that devices are asked about a node before its operands have strides, which count as none; absent
  // inputs are empty.
  plan::KernelQuery query_of(const graph::Graph& graph, const graph::Node& node) const;
  // Does the device say that the node may be a step of what is fused there?
  bool can_fuse(const graph::Graph& graph, const graph::Node& node) const;
  // Contents of a constant variable, or null when unknown.
  const void* constant_data(const std::string& name) const;
  // A constant floating number, of rank 0.
  std::optional<double> number(const graph::Graph& graph, graph::ValueId value) const;
};

struct Pass {
  const char* name;
  const char* doc;
  int (*run)(graph::Graph& graph, PassContext& context);  // returns the number of rewrites
};

// In the order they run.
std::span<const Pass> graph_passes();

// A pass of lowering, which works on the compiler's last graph: each one file in compiler/lowering/.
struct LoweringPass {
  const char* name;
  const char* doc;
  int (*run)(graph::Graph& graph, PassContext& context);  // returns the number of rewrites
  // Throws kRuntime, naming the node, unless the graph has the form that the pass makes. Null: none of its own.
  void (*verify)(const graph::Graph& graph, const PassContext& context);
};

// In the order they run.
std::span<const LoweringPass> lowering_passes();

// passes/<name>.cpp
int assign_devices(graph::Graph& graph, PassContext& context);
int dead_code(graph::Graph& graph, PassContext& context);
int decompose(graph::Graph& graph, PassContext& context);
int choose_regions(graph::Graph& graph, PassContext& context);
int common_subexpressions(graph::Graph& graph, PassContext& context);
int simplify(graph::Graph& graph, PassContext& context);
int fold_constants(graph::Graph& graph, PassContext& context);
int fold_norms(graph::Graph& graph, PassContext& context);
int partition(graph::Graph& graph, PassContext& context);
int recompute(graph::Graph& graph, PassContext& context);
int fuse_add(graph::Graph& graph, PassContext& context);
int fuse_activation(graph::Graph& graph, PassContext& context);
int fuse_batch_norm(graph::Graph& graph, PassContext& context);
int fuse_bias(graph::Graph& graph, PassContext& context);
int fuse_convolution(graph::Graph& graph, PassContext& context);
int fuse_elementwise(graph::Graph& graph, PassContext& context);
int fuse_pad(graph::Graph& graph, PassContext& context);
int fuse_quantized(graph::Graph& graph, PassContext& context);
int fuse_rows(graph::Graph& graph, PassContext& context);
int fuse_updates(graph::Graph& graph, PassContext& context);
int loops(graph::Graph& graph, PassContext& context);
int offload(graph::Graph& graph, PassContext& context);
int pad_products(graph::Graph& graph, PassContext& context);
int patterns(graph::Graph& graph, PassContext& context);

// Says how far a float32 product or convolution may be rounded, where the options allow it.
void set_precision(plan::KernelQuery& query, const OpDef& op, const CompileOptions& options);
// Whether both run at one place, as often: what is made of them may.
inline bool together(const graph::Node& a, const graph::Node& b) {
  return a.placement == b.placement && a.quota == b.quota && a.every == b.every;
}
// How often each value is used: by nodes, outputs and updates.
std::vector<int> count_uses(const graph::Graph& graph);
// The bytes of a contiguous value.
inline uint64_t bytes_of(const TensorType& type) { return checked_bytes(type.shape, dtype_size(type.dtype)); }
// "op add (train.py:41)": how errors name a node.
std::string describe(const graph::Node& node);

}  // namespace sluice::compiler
