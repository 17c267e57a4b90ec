// Makes batch norm by given statistics, and a product with a number, a part of the weight and the bias of the
// convolution or linear layer before or behind it, in graphs that train nothing. Weight and bias become fold_weight and
// fold_bias of variables that no step changes, which lowering keeps beside these, and which follow them. Results differ
// in their last bits, so it is an option.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>

#include "compiler/pass.h"
#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/folded_weights.h"
#include "graph/ops/fused_convolution.h"
#include "graph/ops/movement.h"
#include "graph/ops/norm_common.h"
#include "graph/rewriter.h"

namespace sluice::compiler {
namespace {

using graph::kNoValue;
using graph::Node;
using graph::ValueId;

enum class LayerKind : uint8_t { kNone, kConv, kTransposed, kLinear };

LayerKind layer_of(const Node& node) {
  const std::string_view op = node.op->name;
  if (op == "conv") return LayerKind::kConv;
  if (op == "conv_input_grad") return LayerKind::kTransposed;
  return op == "linear" ? LayerKind::kLinear : LayerKind::kNone;
}
bool is_norm(const Node& node) { return std::string_view(node.op->name) == "batch_norm_infer"; }

namespace norm_in {
enum { kX, kMean, kVar, kScale, kShift };
}

// A layer, and what becomes a part of its weights.
struct Fold {
  int layer = -1;
  int add = -1;     // the addition of its bias, where that is a node
  int folded = -1;  // batch norm, or a product with a number
  bool behind = true;
  double factor = 1;
  ValueId x = kNoValue;                        // what the layer reads then
  ValueId weight = kNoValue, bias = kNoValue;  // variables
};

class Folds {
 public:
  Folds(const graph::Graph& graph, const PassContext& context)
      : graph_(graph), context_(context), uses_(count_uses(graph)), reader_(graph.values().size(), -1) {
    for (int i = 0; i < num_nodes(); ++i)
      for (ValueId input : node(i).inputs)
        if (input != kNoValue) reader_[input] = i;
    inside_.assign(num_nodes(), false);
    for (int i = 0; i < num_nodes(); ++i) {
      if (layer_of(node(i)) == LayerKind::kNone) continue;
      std::optional<Fold> fold = behind(i);
      if (!fold) fold = in_front(i);
      if (!fold) continue;
      for (const int member : {fold->layer, fold->add, fold->folded})
        if (member >= 0) inside_[member] = true;
      folds_.emplace(fold->behind ? fold->folded : i, *fold);
    }
  }

  size_t count() const { return folds_.size(); }
  // The fold whose result takes the place of the node's; null where none does.
  const Fold* at(int node) const {
    const auto it = folds_.find(node);
    return it == folds_.end() ? nullptr : &it->second;
  }
  bool is_inside(int node) const { return inside_[node]; }

  // The variable that no step changes, of `shape`, of which the value is a cast or, in another shape, the elements.
  ValueId source(ValueId value, const Shape& shape) const {
    while (is_floating(graph_.type(value).dtype)) {
      const graph::ValueInfo& info = graph_.values()[value];
      if (info.kind == graph::ValueKind::kVariable)
        return graph_.variables()[info.index].update == kNoValue && info.type.shape == shape ? value : kNoValue;
      if (info.kind != graph::ValueKind::kNode) return kNoValue;
      const Node& made = node(info.index);
      const std::string_view op = made.op->name;
      if (op != "cast" && op != "reshape") return kNoValue;
      value = made.inputs[0];
    }
    return kNoValue;
  }
  // That of an operand, if it is there.
  ValueId source(const Node& node, size_t input) const {
    if (input >= node.inputs.size() || node.inputs[input] == kNoValue) return kNoValue;
    return source(node.inputs[input], graph_.type(node.inputs[input]).shape);
  }

 private:
  int num_nodes() const { return static_cast<int>(graph_.nodes().size()); }
  const Node& node(int i) const { return graph_.nodes()[i]; }

  // It is absent, or there is such a variable.
  bool has_source(const Node& node, size_t input) const {
    return input >= node.inputs.size() || node.inputs[input] == kNoValue || source(node, input) != kNoValue;
  }
  bool is_constant(ValueId variable) const {
    const graph::Variable& v = graph_.variables()[graph_.values()[variable].index];
    return v.constant && context_.evaluate && context_.constant_data(v.name) != nullptr;
  }

  // The layer with its variables; none where a step may change them, or where nobody would keep what is made of them.
  std::optional<Fold> layer(int i) const {
    const Node& n = node(i);
    if (inside_[i]) return std::nullopt;
    const TensorType& y = graph_.type(n.outputs[0]);
    // In float16 a weight times a coefficient may be too large or too small.
    if (y.dtype != DType::kFloat32 && y.dtype != DType::kFloat64 && y.dtype != DType::kBFloat16) return std::nullopt;
    if (source(n, 1) == kNoValue || !has_source(n, 2)) return std::nullopt;
    return Fold{.layer = i, .x = n.inputs[0], .weight = source(n, 1), .bias = source(n, 2)};
  }

  // Whether what is made of all these is kept: it is a constant, or lies beside variables of the host.
  bool is_kept(const Fold& fold) const {
    std::vector<ValueId> sources = {fold.weight};
    if (fold.bias != kNoValue) sources.push_back(fold.bias);
    const Node& folded = node(fold.folded);
    for (size_t i = norm_in::kMean; is_norm(folded) && i < folded.inputs.size(); ++i)
      if (folded.inputs[i] != kNoValue) sources.push_back(source(folded, i));
    if (std::all_of(sources.begin(), sources.end(), [&](ValueId v) { return is_constant(v); })) return true;
    const DeviceKind kind = context_.device_of(node(fold.layer)).kind;
    return kind == DeviceKind::kCpu && context_.target.has_kernel("fold_weight", kind) &&
           context_.target.has_kernel("fold_bias", kind);
  }

  // A product with a number, or a quotient: the operand and the factor.
  std::optional<std::pair<ValueId, double>> scaled(const Node& n) const {
    const std::string_view op = n.op->name;
    if (op != "mul" && op != "div") return std::nullopt;
    for (const int x : {0, 1}) {
      if (graph_.type(n.inputs[x]) != graph_.type(n.outputs[0])) continue;
      const std::optional<double> number = context_.number(graph_, n.inputs[1 - x]);
      if (!number || !std::isfinite(*number)) continue;
      if (op == "mul") return std::pair{n.inputs[x], *number};
      if (x == 0 && *number != 0) return std::pair{n.inputs[0], 1 / *number};
    }
    return std::nullopt;
  }

  // A pass over the result costs more than the memory that a second weight takes. Those of convolutions are kept packed
  // anyway.
  bool is_worth_a_copy(const Node& n) const {
    return layer_of(n) != LayerKind::kLinear ||
           numel(graph_.type(n.outputs[0]).shape) >= numel(graph_.type(n.inputs[1]).shape);
  }

  // Batch norm whose statistics no step changes, of channels that are those of the layer's weights.
  bool is_given_norm(const Node& n, LayerKind layer) const {
    if (!is_norm(n) || (layer == LayerKind::kLinear && graph_.type(n.inputs[0]).shape.rank() != 2)) return false;
    for (size_t i = norm_in::kMean; i < n.inputs.size(); ++i)
      if (!has_source(n, i)) return false;
    return true;
  }

  // The one node that reads the value, which is no result; -1: there is none.
  int sole_reader(ValueId value, const Node& beside) const {
    const int reader = uses_[value] == 1 ? reader_[value] : -1;
    return reader >= 0 && !inside_[reader] && together(node(reader), beside) ? reader : -1;
  }

  // The bias of a transposed convolution is added to what it gives.
  void take_bias(Fold& fold, ValueId& y) const {
    const int add = sole_reader(y, node(fold.layer));
    if (add < 0 || std::string_view(node(add).op->name) != "add") return;
    const ValueId row = node(add).inputs[node(add).inputs[0] == y ? 1 : 0];
    Shape channels(Ints(graph_.type(y).shape.rank(), 1));
    channels[1] = graph_.type(y).shape[1];
    const ValueId bias = source(row, {channels[1]});
    if (bias == kNoValue || graph_.type(row).shape != channels || graph_.type(node(add).outputs[0]) != graph_.type(y))
      return;
    fold.bias = bias;
    fold.add = add;
    y = node(add).outputs[0];
  }

  std::optional<Fold> behind(int i) const {
    std::optional<Fold> fold = layer(i);
    const LayerKind kind = layer_of(node(i));
    if (!fold || (kind == LayerKind::kLinear && attr<std::string>(node(i).attrs, 0) != "none")) return std::nullopt;
    ValueId y = node(i).outputs[0];
    if (kind == LayerKind::kTransposed) take_bias(*fold, y);
    fold->folded = sole_reader(y, node(i));
    if (fold->folded < 0) return std::nullopt;
    const Node& next = node(fold->folded);
    if (const auto by = scaled(next); by && by->first == y && is_worth_a_copy(node(i))) {
      fold->factor = by->second;
    } else if (!is_given_norm(next, kind) || next.inputs[norm_in::kX] != y) {
      return std::nullopt;
    }
    return is_kept(*fold) ? fold : std::nullopt;
  }

  std::optional<Fold> in_front(int i) const {
    std::optional<Fold> fold = layer(i);
    if (!fold) return std::nullopt;
    const graph::ValueInfo& x = graph_.values()[fold->x];
    if (x.kind != graph::ValueKind::kNode || sole_reader(fold->x, node(i)) != i || inside_[x.index] ||
        !together(node(x.index), node(i)))
      return std::nullopt;
    const Node& before = node(x.index);
    const LayerKind kind = layer_of(node(i));
    fold->behind = false;
    fold->folded = x.index;
    if (const auto by = scaled(before); by && is_worth_a_copy(node(i))) {
      fold->x = by->first;
      fold->factor = by->second;
    } else if (is_given_norm(before, kind) && !pads(node(i))) {
      fold->x = before.inputs[norm_in::kX];
    } else {
      return std::nullopt;
    }
    return is_kept(*fold) ? fold : std::nullopt;
  }
  // Zeros around its input are not what a norm would make of them; nor does each output of a transposed convolution
  // read all taps.
  static bool pads(const Node& node) {
    if (layer_of(node) == LayerKind::kTransposed) return true;
    if (layer_of(node) == LayerKind::kLinear) return false;
    const Ints& padding = attr<Ints>(node.attrs, node.op->find_param("padding"));
    return std::any_of(padding.begin(), padding.end(), [](int64_t n) { return n != 0; });
  }

  const graph::Graph& graph_;
  const PassContext& context_;
  const std::vector<int> uses_;
  std::vector<int> reader_;  // per value: the last node that reads it
  std::vector<bool> inside_;
  std::map<int, Fold> folds_;  // by the node whose place the result takes
};

class Rewrite {
 public:
  Rewrite(const Folds& folds, graph::Rewriter& rewriter, PassContext& context)
      : folds_(folds), rewriter_(rewriter), context_(context), builder_(rewriter.target(), context.options.device) {}

  ValueId operator()(const Fold& fold) {
    const Node &layer = source(fold.layer), &folded = source(fold.folded);
    const ExecutorScope scope(builder_);
    builder_.context = graph::Rewriter::context_of(layer);
    static_cast<Provenance&>(builder_.context) = merged(layer, folded);
    const Value x = value(fold.x), weight = new_weight(fold), bias = new_bias(fold);
    switch (layer_of(layer)) {
      case LayerKind::kConv: return builder_.id(convolution(layer, x, weight, bias));
      case LayerKind::kLinear: return builder_.id(call1(*layer.op, {x, weight, bias}, layer.attrs));
      case LayerKind::kTransposed:
      case LayerKind::kNone: break;
    }
    const Value y = call1(*layer.op, {x, weight}, layer.attrs);
    if (!bias.defined()) return builder_.id(y);
    Ints row(y.rank(), 1);
    row[1] = y.shape()[1];
    return builder_.id(ops::add(y, ops::reshape(bias, row)));
  }

 private:
  const Node& source(int node) const { return rewriter_.source().nodes()[node]; }
  Value value(ValueId id) { return id == kNoValue ? Value() : builder_.value(rewriter_[id]); }
  // The variable behind an operand of the norm, which may be a cast of it: the fold computes in float32 itself.
  Value operand(const Node& norm, size_t i) { return value(folds_.source(norm, i)); }

  Attrs attrs(const Fold& fold, DType dtype) const {
    const Node &layer = source(fold.layer), &folded = source(fold.folded);
    Attrs made(5);
    made[ops::fold_attr::kEps] = is_norm(folded) ? attr<double>(folded.attrs, 0) : 0.0;
    made[ops::fold_attr::kFactor] = fold.factor;
    const LayerKind kind = layer_of(layer);
    const bool columns = is_norm(folded) && fold.behind == (kind == LayerKind::kTransposed);
    made[ops::fold_attr::kAxis] = int64_t{columns};
    const bool grouped = columns && kind != LayerKind::kLinear;
    made[ops::fold_attr::kGroups] = grouped ? attr<int64_t>(layer.attrs, layer.op->find_param("groups")) : int64_t{1};
    made[ops::fold_attr::kDType] = dtype;
    return made;
  }

  Value new_weight(const Fold& fold) {
    const Node& folded = source(fold.folded);
    std::array<Value, ops::fold_weight_input::kCount> inputs;
    inputs[ops::fold_weight_input::kWeight] = value(fold.weight);
    if (is_norm(folded)) {
      inputs[ops::fold_weight_input::kVar] = operand(folded, norm_in::kVar);
      inputs[ops::fold_weight_input::kScale] = operand(folded, norm_in::kScale);
    }
    const DType dtype = rewriter_.source().type(source(fold.layer).inputs[1]).dtype;
    return call(ops::fold_weight_op(), inputs, attrs(fold, dtype))[0];
  }

  Value new_bias(const Fold& fold) {
    namespace in = ops::fold_bias_input;
    const Node &layer = source(fold.layer), &folded = source(fold.folded);
    const bool norm = is_norm(folded);
    if (!norm && !fold.behind && layer.inputs.size() > 2) return value(layer.inputs[2]);
    if (!norm && (!fold.behind || fold.bias == kNoValue)) return {};
    std::array<Value, in::kCount> inputs;
    inputs[in::kBias] = value(fold.bias);
    if (norm) {
      inputs[in::kMean] = operand(folded, norm_in::kMean);
      inputs[in::kVar] = operand(folded, norm_in::kVar);
      inputs[in::kScale] = operand(folded, norm_in::kScale);
      inputs[in::kShift] = operand(folded, norm_in::kShift);
      if (!fold.behind) inputs[in::kWeight] = value(fold.weight);
    }
    const DType dtype = rewriter_.source().type(layer.outputs[0]).dtype;
    const bool wide = layer_of(layer) == LayerKind::kConv && adds_float32(layer);
    return call(ops::fold_bias_op(), inputs, attrs(fold, wide ? ops::stat_dtype(dtype) : dtype))[0];
  }

  // The kernel of a fused convolution of the cpu adds a bias before it rounds to 16 bits.
  bool adds_float32(const Node& conv) const {
    const DeviceKind kind = context_.device_of(conv).kind;
    return dtype_size(rewriter_.source().type(conv.outputs[0]).dtype) == 2 && kind == DeviceKind::kCpu &&
           context_.target.has_kernel("fused_conv", kind);
  }
  Value convolution(const Node& conv, const Value& x, const Value& weight, const Value& bias) const {
    if (!bias.defined() || bias.dtype() == x.dtype()) return call1(*conv.op, {x, weight, bias}, conv.attrs);
    std::array<Value, ops::fused_conv_input::kCount> inputs = {x, weight, bias};
    const OpDef& op = ops::fused_conv_op();
    Attrs attrs = {op.params[ops::fused_conv_attr::kEps].default_value, std::string("none")};
    attrs.insert(attrs.end(), conv.attrs.begin(), conv.attrs.end());
    return call(op, inputs, attrs)[0];
  }

  const Folds& folds_;
  graph::Rewriter& rewriter_;
  PassContext& context_;
  graph::GraphBuilder builder_;
};

bool trains(const graph::Graph& graph) {
  return graph.micro_batches() > 1 || std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) {
           return node.role == Role::kBackward || node.role == Role::kUpdate;
         });
}

}  // namespace

int fold_norms(graph::Graph& graph, PassContext& context) {
  if (!context.options.fold_norms || context.options.prims || trains(graph)) return 0;
  const Folds folds(graph, context);
  if (folds.count() == 0) return 0;
  graph::Rewriter rewriter(graph);
  Rewrite rewrite(folds, rewriter, context);
  for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i) {
    if (const Fold* const fold = folds.at(i))
      rewriter.map(graph.nodes()[i].outputs[0], rewrite(*fold));
    else if (!folds.is_inside(i))
      rewriter.take(i);
  }
  graph = rewriter.finish();
  return static_cast<int>(folds.count());
}

}  // namespace sluice::compiler
