// Moves an activation into the linear op that feeds it, when nothing else reads the product: one pass over memory less.
// By default only relu: it is exact in either place, so the result stays bitwise the same. The others are computed
// there by the kernel's own formulas, within the last bits of what their ops give, and options ask for them.
#include <algorithm>
#include <string_view>

#include "compiler/pass.h"
#include "graph/rewriter.h"

namespace sluice::compiler {
namespace {

bool takes_activation(const graph::Node& node) {
  if (std::string_view(node.op->name) != "linear") return false;
  const int i = node.op->find_param("activation");
  return i >= 0 && node.attrs[i] == Attr(std::string("none"));
}

// The name by which linear calls the activation; "" for other ops.
std::string activation_of(const graph::Node& node, bool all) {
  const std::string_view name = node.op->name;
  if (name == "relu") return "relu";
  if (!all) return "";
  if (name == "gelu") {
    const auto& how = attr<std::string>(node.attrs, node.op->find_param("approximate"));
    return how == "none" ? "gelu" : how == "tanh" ? "gelu_tanh" : "";
  }
  return name == "tanh" || name == "sigmoid" || name == "silu" ? std::string(name) : "";
}

}  // namespace

int fuse_activation(graph::Graph& graph, PassContext& context) {
  const bool all = context.options.activations == "all";
  const std::vector<int> uses = count_uses(graph);
  const auto fusable = [&](const graph::Node& node) {
    if (activation_of(node, all).empty() || uses[node.inputs[0]] != 1) return false;
    const graph::ValueInfo& x = graph.values()[node.inputs[0]];
    if (x.kind != graph::ValueKind::kNode) return false;
    const graph::Node& linear = graph.nodes()[x.index];
    return takes_activation(linear) && linear.placement == node.placement;
  };
  std::vector<bool> moves;
  for (const graph::Node& node : graph.nodes()) moves.push_back(fusable(node));
  const auto fused = static_cast<int>(std::count(moves.begin(), moves.end(), true));
  if (fused == 0) return 0;
  graph::Rewriter rewriter(graph);
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const graph::Node& node = graph.nodes()[i];
    if (!moves[i]) {
      rewriter.take(static_cast<int>(i));
      continue;
    }
    // The linear node is there already; its attribute may still change since nothing else reads it.
    const graph::ValueId product = rewriter[node.inputs[0]];
    graph::Graph& target = rewriter.target();
    graph::Node& linear = target.mutable_nodes()[target.values()[product].index];
    static_cast<Provenance&>(linear) = merged(linear, node);
    linear.attrs[linear.op->find_param("activation")] = activation_of(node, all);
    rewriter.map(node.outputs[0], product);
  }
  graph = rewriter.finish();
  return fused;
}

}  // namespace sluice::compiler
