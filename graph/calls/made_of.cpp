#include "graph/calls/made_of.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string_view>

#include "base/scalar_ops.h"
#include "graph/builder.h"
#include "graph/ops/fused.h"
#include "graph/tape.h"

namespace sluice::graph {

std::vector<std::string> made_of(const OpDef& op) {
  if (op.decompose == nullptr) return {};
  std::set<std::string> names;
  for (const Sample& sample : op.samples) {
    Graph graph;
    GraphBuilder builder(graph, {});
    const ExecutorScope scope(builder);
    const GradMode off(false);
    std::vector<Value> inputs;
    for (const SampleInput& input : sample.inputs) {
      const std::string name = "x" + std::to_string(inputs.size());
      inputs.push_back(input.absent ? Value() : builder.value(graph.add_input(name, {input.dtype, input.shape})));
    }
    if (!op.variadic()) inputs.resize(op.inputs.size());
    try {
      op.decompose(inputs, validate_attrs(op, sample.attrs));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kUnsupported) throw;
      return {};
    }
    for (const Node& node : graph.nodes()) names.insert(node.op->name);
  }
  return {names.begin(), names.end()};
}

std::optional<OnePass> steps_of(const OpDef& op, Types inputs, const Attrs& attrs, const DeviceId& device,
                                const std::function<bool(const plan::KernelQuery&)>& can_fuse) {
  if (op.decompose == nullptr || op.num_outputs != 1 || op.random || op.effectful || op.view != nullptr) return {};
  Graph graph;
  GraphBuilder builder(graph, device);
  std::vector<Value> values;
  for (const TensorType& type : inputs)
    values.push_back(builder.value(graph.add_input("x" + std::to_string(values.size()), type)));
  const ExecutorScope scope(builder);
  const GradMode off(false);
  const ValueId result = builder.id(op.decompose(values, attrs).at(0));
  OnePass pass;
  // A body numbers its inputs, which numbers come behind, and then a value for each step.
  std::vector<int> numbered(inputs.size());
  std::iota(numbered.begin(), numbered.end(), 0);
  numbered.resize(inputs.size() + graph.nodes().size());
  const auto is_number = [&](const Node& node) {
    return node.op->name == std::string_view("full") && graph.type(node.outputs[0]).shape.rank() == 0;
  };
  for (const Node& node : graph.nodes()) {
    if (!is_number(node)) continue;
    const OnePass::Number number{graph.type(node.outputs[0]).dtype, name_attrs(*node.op, node.attrs)};
    const auto same = std::find(pass.numbers.begin(), pass.numbers.end(), number);
    numbered.at(static_cast<size_t>(node.outputs[0])) =
        static_cast<int>(inputs.size()) + static_cast<int>(same - pass.numbers.begin());
    if (same == pass.numbers.end()) pass.numbers.push_back(number);
  }
  pass.body.inputs = static_cast<int>(inputs.size() + pass.numbers.size());
  for (const Node& node : graph.nodes()) {
    if (is_number(node)) continue;
    if (!ops::can_be_step(*node.op)) return {};
    plan::KernelQuery query{node.op->name, name_attrs(*node.op, node.attrs), {}, {}, device};
    std::vector<int> operands;
    for (const ValueId input : node.inputs) {
      if (input == kNoValue) return {};
      query.inputs.push_back(TensorSpec::contiguous(graph.type(input)));
      operands.push_back(numbered.at(static_cast<size_t>(input)));
    }
    query.outputs = {TensorSpec::contiguous(graph.type(node.outputs[0]))};
    if (!can_fuse(query)) return {};
    numbered.at(static_cast<size_t>(node.outputs[0])) = pass.body.inputs + static_cast<int>(pass.body.calls.size());
    pass.body.calls.push_back({query.op, query.attrs, operands});
  }
  if (pass.body.inputs > kMostFusedInputs) return {};
  pass.body.outputs = {numbered.at(static_cast<size_t>(result))};
  return pass;
}

}  // namespace sluice::graph
