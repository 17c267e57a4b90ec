// Computes equal expressions once (graph/equal_nodes.h).
#include <algorithm>

#include "compiler/pass.h"
#include "graph/equal_nodes.h"
#include "graph/rewriter.h"

namespace sluice::compiler {

using graph::Graph;
using graph::Node;

int common_subexpressions(Graph& graph, PassContext&) {
  const std::vector<int> equal = graph::equal_nodes(graph);
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
