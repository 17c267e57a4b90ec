#include "graph/calls/made_of.h"

#include <set>

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

std::optional<AttrGraph> steps_of(const OpDef& op, Types inputs, const Attrs& attrs, const DeviceId& device,
                                  const std::function<bool(const plan::KernelQuery&)>& can_fuse) {
  if (op.decompose == nullptr || !ops::can_be_step(op)) return std::nullopt;
  Graph graph;
  GraphBuilder builder(graph, device);
  std::vector<Value> values;
  for (const TensorType& type : inputs)
    values.push_back(builder.value(graph.add_input("x" + std::to_string(values.size()), type)));
  const ExecutorScope scope(builder);
  const GradMode off(false);
  // Values of a graph whose nodes make one each are numbered as a body's are.
  AttrGraph body{static_cast<int>(inputs.size()), {}, {builder.id(op.decompose(values, attrs).at(0))}};
  for (const Node& node : graph.nodes()) {
    if (!ops::can_be_step(*node.op)) return std::nullopt;
    plan::KernelQuery query{node.op->name, name_attrs(*node.op, node.attrs), {}, {}, device};
    for (const ValueId input : node.inputs) {
      if (input == kNoValue) return std::nullopt;
      query.inputs.push_back(TensorSpec::contiguous(graph.type(input)));
    }
    query.outputs = {TensorSpec::contiguous(graph.type(node.outputs[0]))};
    if (!can_fuse(query)) return std::nullopt;
    body.calls.push_back({query.op, query.attrs, {node.inputs.begin(), node.inputs.end()}});
  }
  return body;
}

}  // namespace sluice::graph
