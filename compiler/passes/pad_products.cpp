// Makes products larger by zeros where their device is sooner done with more: on GPUs, where rows do not begin at
// multiples of what tensor cores load. Operands are copied with zeros behind their rows and columns, once for all
// products that read them (common_subexpressions), and what is too much of the result is cut off, which is a view. A
// zero times a zero adds nothing; but another kernel adds up in another order, so that last bits may differ.
#include <string_view>

#include "compiler/pass.h"
#include "graph/ops/matmul.h"
#include "graph/ops/movement.h"
#include "graph/rewriter.h"

namespace sluice::compiler {
namespace {

using graph::Node;
using graph::ValueId;

bool flag(const Node& node, const char* param) { return attr<bool>(node.attrs, node.op->find_param(param)); }

// Empty: the node stays as it is.
Ints sizes_of(const graph::Graph& graph, const PassContext& context, const Node& node) {
  const std::string_view op = node.op->name;
  if (op != "linear" && op != "matmul") return {};
  const int x = graph.type(node.inputs[0]).shape.rank(), y = graph.type(node.inputs[1]).shape.rank();
  if (y != 2 || x < 2 || (op == "matmul" && x != 2)) return {};
  return context.target.padded_sizes(context.query_of(graph, node));
}

// With zeros behind its last two axes, or its only one.
Value padded(const Value& x, int64_t rows, int64_t columns) {
  const Shape& shape = x.shape();
  const int rank = shape.rank();
  if ((rank == 1 || rows == shape[rank - 2]) && columns == shape[rank - 1]) return x;
  Ints high(rank, 0);
  if (rank > 1) high[rank - 2] = rows - shape[rank - 2];
  high[rank - 1] = columns - shape[rank - 1];
  return ops::pad(x, Ints(rank, 0), high);
}

Value product(const graph::Rewriter& rewriter, graph::GraphBuilder& builder, const Node& node, const Ints& sizes) {
  const int64_t m = sizes[0], n = sizes[1], k = sizes[2];
  const auto input = [&](size_t i) { return builder.value(rewriter[node.inputs[i]]); };
  if (std::string_view(node.op->name) == "linear") {
    const Shape& shape = rewriter.source().type(node.inputs[0]).shape;
    const Value bias = node.inputs[2] == graph::kNoValue ? Value{} : padded(input(2), 1, n);
    return ops::linear(padded(input(0), shape[shape.rank() - 2], k), padded(input(1), n, k), bias,
                       attr<std::string>(node.attrs, node.op->find_param("activation")));
  }
  const bool a = flag(node, "transpose_a"), b = flag(node, "transpose_b");
  return ops::matmul(padded(input(0), a ? k : m, a ? m : k), padded(input(1), b ? n : k, b ? k : n), a, b);
}

}  // namespace

int pad_products(graph::Graph& graph, PassContext& context) {
  const int count = static_cast<int>(graph.nodes().size());
  std::vector<Ints> sizes(count);
  int found = 0;
  for (int i = 0; i < count; ++i) {
    sizes[i] = sizes_of(graph, context, graph.nodes()[i]);
    if (!sizes[i].empty()) ++found;
  }
  if (found == 0) return 0;
  graph::Rewriter rewriter(graph);
  for (int i = 0; i < count; ++i) {
    if (sizes[i].empty()) {
      rewriter.take(i);
      continue;
    }
    const Node& node = graph.nodes()[i];
    graph::GraphBuilder builder(rewriter.target(), context.options.device);
    const ExecutorScope scope(builder);
    builder.context = graph::Rewriter::context_of(node);
    const Value larger = product(rewriter, builder, node, sizes[i]);
    const Shape& shape = graph.type(node.outputs[0]).shape;
    const Ints none(shape.rank(), 0), once(shape.rank(), 1);
    const Value cut = ops::slice(larger, none, Ints(shape.begin(), shape.end()), once);
    rewriter.map(node.outputs[0], builder.id(cut));
  }
  graph = rewriter.finish();
  return found;
}

}  // namespace sluice::compiler
