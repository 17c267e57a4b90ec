#pragma once
// Makes a new graph from an old one, node by node: copy, replace or leave out. Every graph pass is written with this
// class.
#include <vector>

#include "graph/builder.h"
#include "graph/graph.h"

namespace sluice::graph {

// Visit the nodes of `source` and call take() or map the outputs yourself; then finish(). The nodes that were taken are
// no longer whole in `source` (Graph::take_node).
class Rewriter {
 public:
  // Starts with the inputs and variables of `source`; `keep_variable` may drop unused ones.
  explicit Rewriter(Graph& source, const std::vector<bool>* keep_variable = nullptr);

  const Graph& source() const { return source_; }
  Graph& target() { return target_; }
  const Graph& target() const { return target_; }
  // The value that stands for a value of the source. REQUIRES: it has been mapped (kNoValue maps to itself).
  ValueId operator[](ValueId old) const { return old == kNoValue ? kNoValue : map_[old]; }
  void map(ValueId old, ValueId replacement) { map_[old] = replacement; }
  // Takes a node over with mapped inputs and maps its outputs. Returns the new node's index.
  int take(int node);
  // The context that a replacement for `node` is stamped with.
  static NodeContext context_of(const Node& node) { return {node, node.placement, node.quota, node.every}; }
  // Adds outputs and updates; the rewriter is then used up.
  Graph finish();

 private:
  Graph& source_;
  Graph target_;
  std::vector<ValueId> map_;
  std::vector<int> variable_map_;
};

}  // namespace sluice::graph
