#pragma once
// Graph + Target -> Plan.
#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "compiler/options.h"
#include "graph/graph.h"
#include "plan/plan.h"
#include "plan/shard.h"
#include "plan/target.h"
#include "plan/time/machine.h"

namespace sluice {

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
// The cost that a choice of layouts has in a step: bytes that travel between devices, in how many conversions, and what
// the first device computes.
struct LayoutCost {
  double bytes = 0, flops = 0;
  int conversions = 0;
};
// A way for a value to lie, with what the whole graph costs then, where all others lie as they were chosen.
struct LayoutCandidate {
  std::string value;  // a variable, or the user's line of a to_global; of values that are alike, the first
  int alike = 1;      // values that lie in the same way
  std::string type, sbp;
  LayoutCost cost;
  double total = 0;  // as the options weigh the cost
  bool chosen = false;
};
// The candidates that were looked at to find the cheapest layouts (compiler/sbp_search.h).
struct LayoutSearch {
  std::vector<LayoutCandidate> candidates;  // value by value
  LayoutCost greedy, found;
  int tried = 0;  // whole plans of layouts; 0: there was no search
};
struct Partition {
  std::vector<plan::Shard> inputs, outputs, shards;  // each in the order of the plan's graph; `shards` are variables
  std::vector<Boxing> boxings;                       // in program order
  LayoutSearch search;
};

// The part of a graph that a foreign backend takes (pass "offload").
struct Offload {
  struct Node {
    std::string op, module, source;
    int cluster = -1;    // -1: it is not taken
    std::string reason;  // why not
    double flops = 0;
  };
  std::string backend, version;  // "": none was asked
  int clusters = 0;
  std::vector<Node> nodes = {};  // of the graph that the pass was given, in program order
  // "onnxruntime: 52 of 61 nodes, 94 % of flops, 3 clusters; not taken: softmax (no mask), ...".
  std::string line() const;
};

struct CompileResult {
  plan::Plan plan;
  graph::Graph graph;                                       // after the graph passes, or options.until
  std::map<std::string, std::vector<std::byte>> constants;  // made by folding, by variable name
  Partition partition;                                      // of graphs over several devices
  Offload offload;                                          // to the backend that the options name
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
