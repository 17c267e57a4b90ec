// Computes equal expressions once: same op, attributes, inputs, placement and rate. Random and effectful ops are left
// alone.
#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "base/key.h"
#include "compiler/pass.h"
#include "graph/rewriter.h"

namespace sluice::compiler {
namespace {

using graph::Graph;
using graph::Node;
using graph::ValueId;

// `first`: by value, the first that is equal.
std::string key_of(const Node& node, const std::vector<ValueId>& first) {
  Key key;
  key.add(reinterpret_cast<uintptr_t>(node.op)).add(node.inputs.size());
  for (const ValueId input : node.inputs) key.add(input == graph::kNoValue ? input : first[input]);
  for (const Attr& attr : node.attrs) key.add(attr);
  key.add(node.placement.device.has_value());
  if (node.placement.device) key.add(*node.placement.device);
  return key.add(node.placement.stream).add(node.every).take();
}

// By node: the one before it that computes the same; -1: none.
std::vector<int> find_equal(const Graph& graph) {
  std::vector<int> equal(graph.nodes().size(), -1);
  std::vector<ValueId> first(graph.values().size());
  std::iota(first.begin(), first.end(), 0);
  std::unordered_map<std::string, int> seen;  // expression -> node
  seen.reserve(graph.nodes().size());
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (node.op->random || node.op->effectful) continue;
    const auto [it, fresh] = seen.try_emplace(key_of(node, first), static_cast<int>(i));
    if (fresh) continue;
    equal[i] = it->second;
    for (size_t o = 0; o < node.outputs.size(); ++o) first[node.outputs[o]] = graph.nodes()[it->second].outputs[o];
  }
  return equal;
}

}  // namespace

int common_subexpressions(Graph& graph, PassContext&) {
  const std::vector<int> equal = find_equal(graph);
  const int removed = static_cast<int>(std::count_if(equal.begin(), equal.end(), [](int node) { return node >= 0; }));
  if (removed == 0) return 0;
  graph::Rewriter rewriter(graph);
  std::vector<int> copied(equal.size(), -1);  // by node: that of the new graph
  for (size_t i = 0; i < equal.size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (equal[i] < 0) {
      copied[i] = rewriter.copy(static_cast<int>(i));
      continue;
    }
    Node& same = rewriter.target().mutable_nodes()[copied[equal[i]]];
    static_cast<Provenance&>(same) = merged(same, node);
    for (size_t o = 0; o < node.outputs.size(); ++o) rewriter.map(node.outputs[o], same.outputs[o]);
  }
  graph = rewriter.finish();
  return removed;
}

}  // namespace sluice::compiler
