// Makes kernels of loops: the body goes through the passes of graphs and of lowering as any graph does, and becomes a
// list of kernel calls with windows on each other's memory, which kernel "loop" runs turn by turn. Loops are left as
// they are for a device that has no such kernel, and decompose() unrolls them.
#include "graph/ops/loops.h"

#include <algorithm>

#include "compiler/pass.h"
#include "compiler/passes/bodies.h"
#include "graph/rewriter.h"

namespace sluice::compiler {
namespace {

using graph::Graph;
using graph::Node;
using graph::ValueId;

bool is_loop(const Node& node) { return node.op == &ops::scan_op() || node.op == &ops::while_loop_op(); }

// Types of what a turn takes: of rows, one.
std::vector<TensorType> taken_by_turn(const Graph& graph, const Node& node, int64_t states, int64_t rows) {
  std::vector<TensorType> types;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    types.push_back(graph.type(node.inputs[i]));
    const bool row = static_cast<int64_t>(i) >= states && static_cast<int64_t>(i) < states + rows;
    if (row) types.back().shape.erase(0);
  }
  return types;
}

}  // namespace

int loops(Graph& graph, PassContext& context) {
  const auto compiled = [&](const Node& node) {
    return is_loop(node) && context.target.has_kernel(ops::loop_op().name, context.device_of(node).kind);
  };
  if (std::none_of(graph.nodes().begin(), graph.nodes().end(), compiled)) return 0;
  graph::Rewriter rewriter(graph);
  int made = 0;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (!compiled(node)) {
      rewriter.take(static_cast<int>(i));
      continue;
    }
    const bool scan = node.op == &ops::scan_op();
    const int body_at = scan ? int{ops::scan_attr::kBody} : int{ops::while_attr::kBody};
    const int states_at = scan ? int{ops::scan_attr::kStates} : int{ops::while_attr::kStates};
    const AttrGraph& body = attr<AttrGraph>(node.attrs, body_at);
    const Attr states = node.attrs[states_at];
    const Attr rows = scan ? node.attrs[ops::scan_attr::kRows] : Attr(int64_t{0});
    const DeviceId device = context.device_of(node);
    Graph turn = graph_of_body(body, taken_by_turn(graph, node, std::get<int64_t>(states), std::get<int64_t>(rows)),
                               graph::Rewriter::context_of(node), device);
    Node loop;
    static_cast<Provenance&>(loop) = node;
    loop.op = &ops::loop_op();
    loop.placement = node.placement;
    loop.quota = node.quota;
    loop.every = node.every;
    loop.attrs = {compile_body(std::move(turn), context, device), states, rows,
                  scan ? node.attrs[ops::scan_attr::kLength] : Attr(int64_t{-1}),
                  scan ? node.attrs[ops::scan_attr::kReverse] : Attr(false)};
    for (const ValueId input : node.inputs) loop.inputs.push_back(rewriter[input]);
    const int index = rewriter.target().add_node(std::move(loop));
    for (size_t o = 0; o < node.outputs.size(); ++o)
      rewriter.map(node.outputs[o], rewriter.target().nodes()[index].outputs[o]);
    ++made;
  }
  graph = rewriter.finish();
  return made;
}

}  // namespace sluice::compiler
