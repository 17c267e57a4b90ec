#include "onnx/export/branching.h"

#include <algorithm>

#include "graph/ops/branches.h"

namespace sluice::onnx::exporting {

using graph::kNoValue;
using graph::Node;
using graph::ValueId;

Branching::Branching(const graph::Graph& graph) : graph_(graph), nodes_(graph.nodes().size()) {
  const auto branches = [](const Node& node) { return node.op == &ops::case_op() || node.op == &ops::esac_op(); };
  if (std::none_of(graph.nodes().begin(), graph.nodes().end(), branches)) return;
  while (!sorted()) {
  }
}

bool Branching::begins(size_t node) const {
  const Node& n = graph_.nodes()[node];
  return n.op == &ops::case_op() && !open_.contains(n.inputs[0]);
}

bool Branching::ends(size_t node) const {
  const Node& n = graph_.nodes()[node];
  return n.op == &ops::esac_op() && !open_.contains(n.inputs[0]);
}

// Finds the branches of all nodes; false where an index turned out to count for nothing, so that they must be found
// anew.
bool Branching::sorted() {
  std::vector<BranchSet> values(graph_.values().size());
  const size_t before = open_.size();
  for (size_t n = 0; n < nodes_.size(); ++n) {
    const Node& node = graph_.nodes()[n];
    BranchSet of;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoValue) continue;
      for (const Branch& branch : values[static_cast<size_t>(node.inputs[i])]) {
        const bool ended = i > 0 && ends(n) && branch.first == node.inputs[0];
        if (!ended)
          of.insert(branch);
        else if (branch.second != static_cast<int64_t>(i) - 1)
          open_.insert(branch.first);
      }
    }
    const auto two = std::adjacent_find(of.begin(), of.end(), [](auto& a, auto& b) { return a.first == b.first; });
    if (two != of.end()) open_.insert(two->first);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      BranchSet& made = values[static_cast<size_t>(node.outputs[o])] = of;
      if (begins(n)) made.emplace(node.inputs[0], static_cast<int64_t>(o));
    }
    nodes_[n] = std::move(of);
  }
  for (const graph::Output& output : graph_.outputs())
    for (const Branch& branch : values[static_cast<size_t>(output.value)]) open_.insert(branch.first);
  return open_.size() == before;
}

std::vector<size_t> Branching::needed(const std::vector<ValueId>& results, const BranchSet& within) const {
  std::set<size_t> found;
  std::vector<ValueId> todo = results;
  while (!todo.empty()) {
    const ValueId value = todo.back();
    todo.pop_back();
    if (value == kNoValue) continue;
    const graph::ValueInfo& info = graph_.values()[static_cast<size_t>(value)];
    if (info.kind != graph::ValueKind::kNode) continue;
    const auto node = static_cast<size_t>(info.index);
    const BranchSet& of = nodes_[node];
    if (std::includes(within.begin(), within.end(), of.begin(), of.end()) || !found.insert(node).second) continue;
    const auto& inputs = graph_.nodes()[node].inputs;
    todo.insert(todo.end(), inputs.begin(), inputs.end());
  }
  return {found.begin(), found.end()};
}

size_t Branching::results_from(size_t node) const {
  const auto& nodes = graph_.nodes();
  size_t end = node;
  const auto is_of_them = [&](ValueId value) {
    return std::any_of(nodes.begin() + static_cast<int64_t>(node), nodes.begin() + static_cast<int64_t>(end),
                       [&](const Node& n) { return n.outputs[0] == value; });
  };
  while (end < nodes.size() && ends(end) && nodes[end].inputs.size() == nodes[node].inputs.size() &&
         nodes[end].inputs[0] == nodes[node].inputs[0] && nodes_[end] == nodes_[node] &&
         std::none_of(nodes[end].inputs.begin(), nodes[end].inputs.end(), is_of_them))
    ++end;
  return end - node;
}

}  // namespace sluice::onnx::exporting
