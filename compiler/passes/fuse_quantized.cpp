// Makes int8_conv and int8_linear of convolutions and products whose operands are both dequantized, on devices with
// such kernels; bias, batch norm by given statistics, addition, relu and the quantization of the result go into them.
// If dequantized values are moved or pooled, the integers are moved or pooled instead, which gives the same bits.
//
// A kernel multiplies integers and adds them in 32 bits, where the ops would in floats: so before it is quantized
// again, a result may differ by roundings; afterwards, by one step.
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>

#include "compiler/pass.h"
#include "graph/builder.h"
#include "graph/ops/comparison.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/fused_convolution.h"
#include "graph/ops/movement.h"
#include "graph/ops/quantization.h"
#include "graph/rewriter.h"

namespace sluice::compiler {
namespace {

using graph::kNoValue;
using graph::Node;
using graph::ValueId;
namespace from_conv = ops::fused_conv_input;

std::string_view name_of(const Node& node) { return node.op->name; }

class Quantized {
 public:
  Quantized(graph::Graph& graph, PassContext& context)
      : rewriter_(graph),
        context_(context),
        builder_(rewriter_.target(), context.options.device),
        uses_(count_uses(graph)),
        reader_(graph.values().size(), -1) {
    for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i)
      for (ValueId input : graph.nodes()[i].inputs)
        if (input != kNoValue) reader_[input] = i;
  }

  int run() {
    const ExecutorScope scope(builder_);
    for (int i = 0; i < static_cast<int>(source().nodes().size()); ++i) {
      if (const auto waiting = ends_.find(i); waiting != ends_.end()) {
        make(waiting->second, &source().nodes()[i]);
      } else if (!takes_on(i) && !moves_integers(i)) {
        rewriter_.take(i);
      }
    }
    return rewrites_;
  }
  graph::Graph finish() { return rewriter_.finish(); }

 private:
  // Integers of the new graph, and what they stand for.
  struct Integers {
    ValueId q = kNoValue, scale = kNoValue, zero = kNoValue;
    int64_t axis = 0;
  };

  const graph::Graph& source() const { return rewriter_.source(); }
  const graph::Graph& target() const { return rewriter_.target(); }

  // The integers that `value` of the source was dequantized from, if it was.
  std::optional<Integers> integers_of(ValueId value) const {
    if (value == kNoValue) return std::nullopt;
    const graph::ValueInfo& info = target().values()[rewriter_[value]];
    if (info.kind != graph::ValueKind::kNode) return std::nullopt;
    const Node& node = target().nodes()[info.index];
    if (node.op != &ops::dequantize_op()) return std::nullopt;
    return Integers{node.inputs[0], node.inputs[1], node.inputs[2], attr<int64_t>(node.attrs, 0)};
  }
  // The same of a tensor with one scale.
  std::optional<Integers> whole(ValueId value) const {
    const auto integers = integers_of(value);
    return integers && is_one(integers->scale) && is_one(integers->zero) ? integers : std::nullopt;
  }
  bool is_one(ValueId value) const { return value == kNoValue || numel(target().type(value).shape) == 1; }
  bool is_float32(ValueId value) const { return value == kNoValue || source().type(value).dtype == DType::kFloat32; }

  // Views and maximums of dequantized values are taken of the integers.
  bool moves_integers(int i) {
    const Node& node = source().nodes()[i];
    const std::string_view op = name_of(node);
    const bool view = op == "reshape" || op == "permute" || op == "slice";
    const bool pool = op == "max_pool" && uses_[node.outputs[1]] == 0;
    if ((!view && !pool) || !is_float32(node.inputs[0])) return false;
    const auto integers = whole(node.inputs[0]);
    if (!integers || (pool && target().type(integers->q).dtype != DType::kUInt8)) return false;
    builder_.context = graph::Rewriter::context_of(node);
    const Value moved = builder_.call(*node.op, std::vector<Value>{builder_.value(integers->q)}, node.attrs)[0];
    rewriter_.map(node.outputs[0], builder_.id(ops::dequantize(moved, value(integers->scale), value(integers->zero))));
    ++rewrites_;
    return true;
  }

  // Whether node i becomes a kernel of integers: it is made at once, or where its result is quantized.
  bool takes_on(int i) {
    const Node& node = source().nodes()[i];
    if (!is_candidate(node)) return false;
    const ValueId y = node.outputs[0];
    const int next = uses_[y] == 1 ? reader_[y] : -1;
    if (next >= 0 && requantizes(source().nodes()[next], node)) {
      ends_[next] = i;
      return true;
    }
    make(i, nullptr);
    return true;
  }

  bool is_candidate(const Node& node) const {
    const std::string_view op = name_of(node);
    const bool conv = op == "conv" || op == "fused_conv";
    if (!conv && op != "linear" && op != "matmul") return false;
    const DeviceKind kind = context_.device_of(node).kind;
    if (!context_.target.has_kernel(conv ? "int8_conv" : "int8_linear", kind) || !is_float32(node.outputs[0]))
      return false;
    if (!whole(node.inputs[0])) return false;
    const auto weight = integers_of(node.inputs[1]);
    if (!weight || weight->zero != kNoValue || target().type(weight->q).dtype != DType::kInt8) return false;
    const bool each = !is_one(weight->scale);
    if (conv) return !each || weight->axis == 0;
    if (op == "linear") {
      const Attr& activation = node.attrs[node.op->find_param("activation")];
      const bool known = activation == Attr(std::string("none")) || activation == Attr(std::string("relu"));
      return known && target().type(weight->q).shape.rank() == 2 && (!each || weight->axis == 0);
    }
    const bool turned = attr<bool>(node.attrs, 1);
    return !attr<bool>(node.attrs, 0) && target().type(weight->q).shape.rank() == 2 &&
           (!each || weight->axis == (turned ? 0 : 1));
  }

  // Whether `next` rounds the result of `node` to integers with one scale. After a relu its zero point is the least of
  // them, so that what is out of range is what relu takes away.
  bool requantizes(const Node& next, const Node& node) const {
    if (next.op != &ops::quantize_op() || next.inputs[0] != node.outputs[0] || next.placement != node.placement ||
        next.every != node.every || next.quota != node.quota || !is_float32(next.inputs[1]))
      return false;
    for (int i = 1; i <= 2; ++i)
      if (next.inputs[i] != kNoValue && numel(source().type(next.inputs[i]).shape) != 1) return false;
    return !has_relu(node) || (attr<DType>(next.attrs, 1) == DType::kUInt8 && is_zero(next.inputs[2]));
  }
  static bool has_relu(const Node& node) {
    const int i = node.op->find_param("activation");
    return i >= 0 && node.attrs[i] == Attr(std::string("relu"));
  }
  // A constant that is 0, of the source.
  bool is_zero(ValueId id) const {
    if (id == kNoValue) return true;
    const graph::ValueInfo& info = source().values()[id];
    if (info.kind != graph::ValueKind::kVariable || !source().variables()[info.index].constant) return false;
    const void* const data = context_.constant_data(source().variables()[info.index].name);
    int32_t zero = 1;
    if (data != nullptr) std::memcpy(&zero, data, sizeof(zero));
    return zero == 0;
  }
  // The same, of the new graph, whose variables are the source's.
  bool is_zero_of_target(ValueId id) const {
    if (id == kNoValue) return true;
    const graph::ValueInfo& info = target().values()[id];
    return info.kind == graph::ValueKind::kVariable && is_zero(source().variables()[info.index].value);
  }

  static Value one(const Value& v) { return v.rank() == 1 ? v : ops::reshape(v, {1}); }
  Value value(ValueId id) { return id == kNoValue ? Value() : builder_.value(id); }
  // Input i of a node of the source.
  Value input(const Node& node, size_t i) {
    return i < node.inputs.size() ? value(rewriter_[node.inputs[i]]) : Value();
  }

  // Node i as a kernel of integers, with what quantizes its result, if anything does.
  void make(int i, const Node* quantize) {
    const Node& node = source().nodes()[i];
    const bool conv = name_of(node) == "conv" || name_of(node) == "fused_conv";
    builder_.context = graph::Rewriter::context_of(node);
    if (quantize != nullptr) static_cast<Provenance&>(builder_.context) = merged(node, *quantize);
    const Integers x = *whole(node.inputs[0]), w = *integers_of(node.inputs[1]);
    const Shape& weight = target().type(w.q).shape;
    const bool turned = name_of(node) == "matmul" && !attr<bool>(node.attrs, 1);
    const int64_t channels = weight[turned ? 1 : 0];
    const auto row = [&](const Value& v) {
      return v.shape() == Shape({channels}) ? v : ops::expand(one(v), {channels});
    };

    // y = sums * scale + shift + residual.
    Value scale = row(ops::mul(value(w.scale), value(x.scale))), shift = input(node, 2);
    if (name_of(node) == "fused_conv") add_norm(node, scale, shift);
    std::vector<Value> inputs(ops::int8_conv_input::kCount);
    if (conv && node.inputs.size() > from_conv::kResidual && node.inputs[from_conv::kResidual] != kNoValue)
      add_residual(node, inputs, shift, row);
    Attr dtype = NoAttr();
    if (quantize != nullptr) {
      dtype = quantize->attrs[1];
      const Value step = one(input(*quantize, 1));
      scale = ops::div(scale, step);
      if (shift.defined()) shift = ops::div(shift, step);
      Value& residual_scale = inputs[ops::int8_conv_input::kResidualScale];
      if (inputs[ops::int8_conv_input::kResidual].defined())
        residual_scale = ops::div(residual_scale.defined() ? ops::Operand(residual_scale) : ops::Operand(1.0), step);
      if (!is_zero(quantize->inputs[2])) {
        const Value zero = one(ops::cast(input(*quantize, 2), DType::kFloat32));
        shift = shift.defined() ? ops::add(shift, zero) : row(zero);
      }
    }
    inputs[ops::int8_conv_input::kX] = value(x.q);
    inputs[ops::int8_conv_input::kWeight] = turned ? ops::permute(value(w.q), {1, 0}) : value(w.q);
    inputs[ops::int8_conv_input::kScale] = scale;
    inputs[ops::int8_conv_input::kShift] = shift;
    if (!is_zero_of_target(x.zero)) inputs[ops::int8_conv_input::kZero] = one(value(x.zero));
    Attrs attrs = {std::string(has_relu(node) ? "relu" : "none"), dtype};
    const OpDef& op = conv ? ops::int8_conv_op() : ops::int8_linear_op();
    if (conv) attrs.insert(attrs.end(), node.attrs.end() - 4, node.attrs.end());
    inputs.resize(op.inputs.size());
    const Value y = builder_.call(op, inputs, attrs)[0];
    rewriter_.map(quantize != nullptr ? quantize->outputs[0] : node.outputs[0], builder_.id(y));
    ++rewrites_;
  }

  // Batch norm by given statistics, of y = sums * scale + shift.
  void add_norm(const Node& node, Value& scale, Value& shift) {
    if (node.inputs[from_conv::kMean] == kNoValue) return;
    Value factor =
        ops::rsqrt(ops::add(input(node, from_conv::kVar), attr<double>(node.attrs, ops::fused_conv_attr::kEps)));
    if (node.inputs[from_conv::kScale] != kNoValue) factor = ops::mul(factor, input(node, from_conv::kScale));
    const Value mean = input(node, from_conv::kMean);
    shift = ops::mul(shift.defined() ? ops::sub(shift, mean) : ops::neg(mean), factor);
    if (node.inputs[from_conv::kShift] != kNoValue) shift = ops::add(shift, input(node, from_conv::kShift));
    scale = ops::mul(scale, factor);
  }

  template <class Row>
  void add_residual(const Node& node, std::vector<Value>& inputs, Value& shift, Row row) {
    namespace in = ops::int8_conv_input;
    const auto integers = whole(node.inputs[from_conv::kResidual]);
    if (!integers) {
      inputs[in::kResidual] = input(node, from_conv::kResidual);
      return;
    }
    inputs[in::kResidual] = value(integers->q);
    inputs[in::kResidualScale] = one(value(integers->scale));
    if (is_zero_of_target(integers->zero)) return;
    const Value away = one(ops::mul(ops::cast(value(integers->zero), DType::kFloat32), value(integers->scale)));
    shift = shift.defined() ? ops::sub(shift, away) : row(ops::neg(away));
  }

  graph::Rewriter rewriter_;
  PassContext& context_;
  graph::GraphBuilder builder_;
  const std::vector<int> uses_;
  std::vector<int> reader_;  // per value: the last node that reads it
  std::map<int, int> ends_;  // by the node that quantizes its result: a node that is made there
  int rewrites_ = 0;
};

}  // namespace

int fuse_quantized(graph::Graph& graph, PassContext& context) {
  const auto dequantizes = [](const Node& node) { return node.op == &ops::dequantize_op(); };
  if (std::none_of(graph.nodes().begin(), graph.nodes().end(), dequantizes)) return 0;
  Quantized quantized(graph, context);
  const int rewrites = quantized.run();
  graph = quantized.finish();
  return rewrites;
}

}  // namespace sluice::compiler
