// Moves an addition into the product of matrices that feeds it, where nothing else reads the product, on devices with a
// kernel "fused_matmul": one pass over memory less. Not in the backward pass, where a product would wait for those that
// come from other micro-batches. The kernel adds to sums in full precision, so float32 results stay bitwise the same,
// and 16-bit ones are rounded once.
#include <string_view>

#include "compiler/pass.h"
#include "compiler/sums.h"
#include "graph/ops/fused_matmul.h"
#include "graph/rewriter.h"

namespace sluice::compiler {
namespace {

using graph::kNoValue;
using graph::Node;
using graph::ValueId;
namespace in = ops::fused_matmul_input;

const Attr& attr_of(const Node& node, const char* param) { return node.attrs[node.op->find_param(param)]; }

class Sums {
 public:
  Sums(const graph::Graph& graph, const PassContext& context)
      : graph_(graph), context_(context), uses_(count_uses(graph)) {}

  // Which operand of an addition is a product that it can join: of two, the later one. -1: none is.
  int product_of(const Node& add) const {
    if (std::string_view(add.op->name) != "add" || add.role == Role::kBackward ||
        graph_.type(add.inputs[0]) != graph_.type(add.inputs[1]))
      return -1;
    const int made[] = {product(add, add.inputs[0]), product(add, add.inputs[1])};
    if (made[0] < 0 && made[1] < 0) return -1;
    return made[1] > made[0] ? 1 : 0;
  }

 private:
  int product(const Node& add, ValueId value) const {
    const graph::ValueInfo& info = graph_.values()[value];
    if (info.kind != graph::ValueKind::kNode || uses_[value] != 1 || !is_floating(info.type.dtype)) return -1;
    const Node& node = graph_.nodes()[info.index];
    const std::string_view op = node.op->name;
    // linear also takes a vector, which is no matrix.
    const bool plain = op == "matmul" || (op == "linear" && graph_.type(node.inputs[0]).shape.rank() >= 2 &&
                                          attr_of(node, "activation") == Attr(std::string("none")));
    const bool joins = plain && node.placement == add.placement && node.quota == add.quota && node.every == add.every &&
                       context_.target.has_kernel("fused_matmul", context_.device_of(node).kind);
    return joins ? info.index : -1;
  }

  const graph::Graph& graph_;
  const PassContext& context_;
  const std::vector<int> uses_;
};

Node fuse(const graph::Rewriter& rewriter, const Node& product, const Node& add, ValueId residual) {
  const bool linear = std::string_view(product.op->name) == "linear";
  Node made = product;
  made.op = &ops::fused_matmul_op();
  made.outputs.clear();
  made.inputs.assign(in::kCount, kNoValue);
  for (const int i : {in::kLeft, in::kRight}) made.inputs[i] = rewriter[product.inputs[i]];
  if (linear) made.inputs[in::kBias] = rewriter[product.inputs[2]];
  made.inputs[in::kResidual] = rewriter[residual];
  if (linear) made.attrs = {false, true};
  static_cast<Provenance&>(made) = merged(product, add);
  return made;
}

}  // namespace

int fuse_add(graph::Graph& graph, PassContext& context) {
  if (!context.options.fuse_add || context.options.keep_ops) return 0;
  const Sums sums(graph, context);
  const int fused = fuse_sums(
      graph, [&](const Node& add) { return sums.product_of(add); },
      [](graph::Rewriter& rewriter, const Node& product, const Node& add, ValueId residual) {
        const int made = rewriter.target().add_node(fuse(rewriter, product, add, residual));
        return rewriter.target().nodes()[made].outputs[0];
      });
  context.fused_adds += fused;
  return fused;
}

}  // namespace sluice::compiler
