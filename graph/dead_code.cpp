#include "graph/dead_code.h"

#include "graph/rewriter.h"

namespace sluice::graph {
namespace {

bool changes(const Variable& v) { return v.update != kNoValue && v.update != v.value; }

}  // namespace

int remove_dead_code(Graph& graph) {
  std::vector<bool> live(graph.values().size(), false);
  for (const Output& output : graph.outputs()) live[output.value] = true;
  for (const Variable& v : graph.variables()) {
    if (changes(v)) live[v.update] = true;
  }
  const int num_nodes = static_cast<int>(graph.nodes().size());
  std::vector<bool> keep(num_nodes, false);
  int removed = num_nodes;
  for (int i = num_nodes - 1; i >= 0; --i) {
    const Node& node = graph.nodes()[i];
    keep[i] = node.op->effectful;
    for (ValueId output : node.outputs) keep[i] = keep[i] || live[output];
    if (!keep[i]) continue;
    --removed;
    for (ValueId input : node.inputs) {
      if (input != kNoValue) live[input] = true;
    }
  }
  std::vector<bool> keep_variable;
  for (const Variable& v : graph.variables()) {
    keep_variable.push_back(live[v.value] || changes(v));
    removed += !keep_variable.back();
  }
  if (removed == 0) return 0;
  Rewriter rewriter(graph, &keep_variable);
  for (int i = 0; i < num_nodes; ++i) {
    if (keep[i]) rewriter.take(i);
  }
  graph = rewriter.finish();
  return removed;
}

}  // namespace sluice::graph
