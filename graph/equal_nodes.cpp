#include "graph/equal_nodes.h"

#include <numeric>
#include <string>
#include <unordered_set>

#include "base/key.h"

namespace sluice::graph {
namespace {

// `first`: by value, the first that is equal.
std::string key_of(const Node& node, const std::vector<ValueId>& first) {
  Key key;
  key.add(reinterpret_cast<uintptr_t>(node.op)).add(node.inputs.size());
  for (const ValueId input : node.inputs) key.add(input == kNoValue ? input : first[input]);
  for (const Attr& attr : node.attrs) key.add(attr);
  key.add(node.placement.device.has_value());
  if (node.placement.device) key.add(*node.placement.device);
  return key.add(node.placement.stream).add(node.every).take();
}

}  // namespace

std::vector<int> equal_nodes(const Graph& graph) {
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

}  // namespace sluice::graph
