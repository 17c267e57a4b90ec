// Computes equal expressions once: same op, attributes, inputs, placement and rate. Random and effectful ops are left
// alone, and what is computed again on purpose.
#include <algorithm>
#include <numeric>
#include <unordered_set>

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
  // Expressions by their nodes. Keys are written again to be compared, which only equal hashes ask for.
  std::vector<size_t> hashes(graph.nodes().size());
  const auto hash = [&](int node) { return hashes[node]; };
  const auto same = [&](int a, int b) { return key_of(graph.nodes()[a], first) == key_of(graph.nodes()[b], first); };
  std::unordered_set<int, decltype(hash), decltype(same)> seen(2 * graph.nodes().size(), hash, same);
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (node.op->random || node.op->effectful || node.role == Role::kRecompute) continue;
    hashes[i] = std::hash<std::string>()(key_of(node, first));
    const auto [it, fresh] = seen.insert(static_cast<int>(i));
    if (fresh) continue;
    equal[i] = *it;
    for (size_t o = 0; o < node.outputs.size(); ++o) first[node.outputs[o]] = graph.nodes()[*it].outputs[o];
  }
  return equal;
}

}  // namespace

int common_subexpressions(Graph& graph, PassContext&) {
  const std::vector<int> equal = find_equal(graph);
  const int removed = static_cast<int>(std::count_if(equal.begin(), equal.end(), [](int node) { return node >= 0; }));
  if (removed == 0) return 0;
  graph::Rewriter rewriter(graph);
  std::vector<int> taken(equal.size(), -1);  // by node: that of the new graph
  for (size_t i = 0; i < equal.size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (equal[i] < 0) {
      taken[i] = rewriter.take(static_cast<int>(i));
      continue;
    }
    Node& same = rewriter.target().mutable_nodes()[taken[equal[i]]];
    static_cast<Provenance&>(same) = merged(same, node);
    for (size_t o = 0; o < node.outputs.size(); ++o) rewriter.map(node.outputs[o], same.outputs[o]);
  }
  graph = rewriter.finish();
  return removed;
}

}  // namespace sluice::compiler
