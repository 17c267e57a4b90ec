// Makes one `linear` of a product with a matrix and the addition of a row to each of its rows, when nothing else reads
// the product: one pass over memory less, and an activation that follows may move in, too. Kernels add the row to sums
// in full precision, so that float32 results stay the same and 16-bit ones are rounded once. It does not look through a
// reshape between the two, which products of more than two dims are traced with.
#include <string_view>

#include "compiler/pass.h"
#include "compiler/sums.h"
#include "graph/ops/matmul.h"
#include "graph/ops/movement.h"
#include "graph/rewriter.h"

namespace sluice::compiler {
namespace {

using graph::Node;
using graph::ValueId;

bool flag(const Node& node, const char* param) { return attr<bool>(node.attrs, node.op->find_param(param)); }

class Sums {
 public:
  Sums(const graph::Graph& graph, const PassContext& context)
      : graph_(graph), context_(context), uses_(count_uses(graph)) {}

  // Which operand of an addition is the product; -1 where there is none that the addition could join.
  int product_of(const Node& add) const {
    if (std::string_view(add.op->name) != "add") return -1;
    for (int i = 0; i < 2; ++i)
      if (is_product(add, add.inputs[i]) && is_row(add, add.inputs[1 - i])) return i;
    return -1;
  }

 private:
  bool is_product(const Node& add, ValueId value) const {
    const graph::ValueInfo& info = graph_.values()[value];
    if (info.kind != graph::ValueKind::kNode || uses_[value] != 1 || info.type != graph_.type(add.outputs[0]))
      return false;
    const Node& node = graph_.nodes()[info.index];
    return std::string_view(node.op->name) == "matmul" && !flag(node, "transpose_a") &&
           graph_.type(node.inputs[1]).shape.rank() == 2 && is_floating(info.type.dtype) &&
           node.placement == add.placement && node.quota == add.quota && node.every == add.every &&
           context_.target.has_kernel("linear", context_.device_of(node).kind);
  }

  bool is_row(const Node& add, ValueId value) const {
    const TensorType &row = graph_.type(value), &sum = graph_.type(add.outputs[0]);
    return row.shape.rank() == 1 && row.shape[0] == sum.shape.back() && row.dtype == sum.dtype;
  }

  const graph::Graph& graph_;
  const PassContext& context_;
  const std::vector<int> uses_;
};

}  // namespace

int fuse_bias(graph::Graph& graph, PassContext& context) {
  const Sums sums(graph, context);
  return fuse_sums(
      graph, [&](const Node& add) { return sums.product_of(add); },
      [&](graph::Rewriter& rewriter, const Node& matmul, const Node& add, ValueId row) {
        graph::GraphBuilder builder(rewriter.target(), context.options.device);
        const ExecutorScope scope(builder);
        builder.context = graph::Rewriter::context_of(matmul);
        static_cast<Provenance&>(builder.context) = merged(matmul, add);
        const Value b = builder.value(rewriter[matmul.inputs[1]]);
        const Value weight = flag(matmul, "transpose_b") ? b : ops::permute(b, {1, 0});
        return builder.id(ops::linear(builder.value(rewriter[matmul.inputs[0]]), weight, builder.value(rewriter[row])));
      });
}

}  // namespace sluice::compiler
