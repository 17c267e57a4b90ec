#include "compiler/sums.h"

namespace sluice::compiler {

using graph::Node;
using graph::ValueId;

int fuse_sums(
    graph::Graph& graph, const std::function<int(const Node& add)>& maker,
    const std::function<ValueId(graph::Rewriter& rewriter, const Node& made, const Node& add, ValueId other)>& fused) {
  std::vector<int> operand;  // by node: the one that it joins; -1: the node stays
  std::vector<bool> left_out(graph.nodes().size(), false);
  int count = 0;
  for (const Node& node : graph.nodes()) {
    operand.push_back(maker(node));
    if (operand.back() < 0) continue;
    left_out[graph.values()[node.inputs[operand.back()]].index] = true;
    ++count;
  }
  if (count == 0) return 0;
  graph::Rewriter rewriter(graph);
  for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i) {
    const Node& node = graph.nodes()[i];
    if (operand[i] >= 0) {
      const Node& made = graph.nodes()[graph.values()[node.inputs[operand[i]]].index];
      rewriter.map(node.outputs[0], fused(rewriter, made, node, node.inputs[1 - operand[i]]));
    } else if (!left_out[i]) {
      rewriter.take(i);
    }
  }
  graph = rewriter.finish();
  return count;
}

}  // namespace sluice::compiler
