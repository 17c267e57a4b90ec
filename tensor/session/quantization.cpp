#include "tensor/session/quantization.h"

#include <set>
#include <string_view>

#include "graph/builder.h"
#include "graph/dead_code.h"
#include "graph/ops/quantization.h"
#include "graph/rewriter.h"
#include "tensor/session/graph_session.h"

namespace sluice {
namespace {

using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::ValueId;
using graph::ValueKind;

// Views and maximums have the range of what they are of.
ValueId source_of(const Graph& graph, ValueId value) {
  while (graph.values()[value].kind == ValueKind::kNode) {
    const graph::ValueInfo& info = graph.values()[value];
    const Node& node = graph.nodes()[info.index];
    const std::string_view op = node.op->name;
    if (info.output != 0 || (op != "reshape" && op != "permute" && op != "max_pool")) break;
    value = node.inputs[0];
  }
  return value;
}

// The graph without what it does not need any more.
Graph pruned(Graph graph) {
  graph::remove_dead_code(graph);
  return graph;
}

CapturedGraph with_variables(Graph graph, const std::map<std::string, Tensor>& variables) {
  CapturedGraph captured{std::move(graph), {}};
  for (const graph::Variable& v : captured.graph.variables()) captured.variables[v.name] = variables.at(v.name);
  return captured;
}

class Quantizer {
 public:
  Quantizer(const CapturedGraph& captured, const Quantization& how)
      : graph_(frozen(captured.graph)),
        how_(how),
        variables_(captured.variables),
        rewriter_(graph_),
        builder_(rewriter_.target(), DeviceId{}) {
    for (const QuantizableCall& call : quantizable_calls(graph_)) calls_.emplace(call.node, call);
    exact_.assign(graph_.values().size(), kNoValue);
  }

  CapturedGraph run() {
    const ExecutorScope scope(builder_);
    for (const graph::Input& input : graph_.inputs()) quantize_source(input.value);
    const std::set<int> chosen(how_.nodes.begin(), how_.nodes.end());
    for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
      if (!chosen.contains(i)) {
        rewriter_.take(i);
      } else {
        SLUICE_CHECK(calls_.contains(i), "quantized: node {} is no convolution or product by a weight", i);
        builder_.context = graph::Rewriter::context_of(graph_.nodes()[i]);
        quantize_call(i, calls_.at(i));
      }
      for (ValueId output : graph_.nodes()[i].outputs) quantize_source(output);
    }
    for (const graph::Output& output : graph_.outputs())
      if (exact_[output.value] != kNoValue) rewriter_.map(output.value, exact_[output.value]);
    return with_variables(pruned(rewriter_.finish()), variables_);
  }

 private:
  // For inference, of all results.
  static Graph frozen(Graph graph) {
    std::vector<int> all;
    for (size_t i = 0; i < graph.outputs().size(); ++i) all.push_back(static_cast<int>(i));
    graph.keep_outputs(all);
    graph.freeze_variables();
    return graph;
  }

  Value constant(const std::string& name, const Tensor& tensor) {
    variables_.insert_or_assign(name, tensor);
    return builder_.value(rewriter_.target().add_variable(name, tensor.type(), /*constant=*/true));
  }

  void quantize_source(ValueId value) {
    const auto found = how_.sources.find(value);
    if (found == how_.sources.end()) return;
    const graph::ValueInfo& info = graph_.values()[value];
    builder_.context = {};
    if (info.kind == ValueKind::kNode) builder_.context = graph::Rewriter::context_of(graph_.nodes()[info.index]);
    exact_[value] = rewriter_[value];
    const std::string name = fmt::format("quantized.{}", number_++);
    const Value scale = constant(name + ".scale", found->second.scale),
                zero = constant(name + ".zero_point", found->second.zero_point);
    const Value q = ops::quantize(builder_.value(exact_[value]), scale, zero);
    rewriter_.map(value, builder_.id(ops::dequantize(q, scale, zero)));
  }

  void quantize_call(int index, const QuantizableCall& call) {
    Node node = graph_.nodes()[index];
    std::vector<Value> inputs;
    for (ValueId input : node.inputs) inputs.push_back(input == kNoValue ? Value() : builder_.value(rewriter_[input]));
    if (!how_.sources.contains(call.source)) {
      const ops::IntegerRange range = ops::range_of(inputs[0]);
      inputs[0] =
          ops::dequantize(ops::quantize(inputs[0], range.scale, range.zero_point), range.scale, range.zero_point);
    }
    const auto [weight, added] = weights_.try_emplace(call.weight);
    if (added) {
      const Quantization::Weight& given = how_.weights.at(call.weight);
      weight->second = ops::dequantize(constant(call.weight + ".int8", given.integers),
                                       constant(call.weight + ".scale", given.scale), {}, call.axis);
    }
    inputs[1] = weight->second;
    rewriter_.map(node.outputs[0], builder_.id(builder_.call(*node.op, inputs, node.attrs)[0]));
  }

  Graph graph_;
  const Quantization& how_;
  std::map<std::string, Tensor> variables_;
  graph::Rewriter rewriter_;
  graph::GraphBuilder builder_;
  std::map<int, QuantizableCall> calls_;
  std::map<std::string, Value> weights_;  // dequantized
  std::vector<ValueId> exact_;            // what a value was before it was quantized
  int number_ = 0;
};

}  // namespace

std::vector<QuantizableCall> quantizable_calls(const Graph& graph) {
  std::vector<QuantizableCall> calls;
  for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i) {
    const Node& node = graph.nodes()[i];
    const std::string_view op = node.op->name;
    if (op != "conv" && op != "linear" && op != "matmul") continue;
    const TensorType& x = graph.type(node.inputs[0]);
    const graph::ValueInfo& w = graph.values()[node.inputs[1]];
    if (x.dtype != DType::kFloat32 || w.kind != ValueKind::kVariable || numel(w.type.shape) == 0 || node.every != 1)
      continue;
    const graph::Variable& weight = graph.variables()[w.index];
    const bool matmul = op == "matmul", turned = matmul && !attr<bool>(node.attrs, 1);
    if (weight.update != kNoValue || (op != "conv" && w.type.shape.rank() != 2) ||
        (matmul && attr<bool>(node.attrs, 0)))
      continue;
    calls.push_back({i, std::string(op), node.module, weight.name, turned ? 1 : 0, source_of(graph, node.inputs[0])});
  }
  return calls;
}

CapturedGraph observing(const CapturedGraph& captured, const std::vector<ValueId>& values) {
  Graph graph = captured.graph;
  graph.keep_outputs({});
  for (size_t i = 0; i < values.size(); ++i) graph.add_output(fmt::format("observed.{}", i), values[i]);
  return with_variables(pruned(std::move(graph)), captured.variables);
}

CapturedGraph quantized(const CapturedGraph& captured, const Quantization& how) {
  return Quantizer(captured, how).run();
}

CapturedGraph with_int8_kernels(EagerExecutor& eager, const CapturedGraph& captured) {
  static const std::set<std::string> kUsed = {"fuse_bias", "fuse_activation", "fuse_pad", "fuse_convolution",
                                              "fuse_quantized"};
  GraphSessionOptions options;
  options.dry_run = true;
  options.compile.name = captured.graph.name;
  options.compile.until = "fuse_quantized";
  for (const std::string& pass : pass_names())
    if (!kUsed.contains(pass)) options.compile.disabled_passes.push_back(pass);
  const GraphSession session(eager, captured, std::move(options));
  return with_variables(pruned(session.compiled().graph), captured.variables);
}

}  // namespace sluice
