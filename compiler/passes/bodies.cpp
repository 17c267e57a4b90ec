#include "compiler/passes/bodies.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "compiler/lowering/lowering.h"
#include "compiler/lowering/windows.h"
#include "graph/nested.h"
#include "graph/tape.h"
#include "plan/loop_program.h"

namespace sluice::compiler {
namespace {

using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::ValueId;

// Passes that are about a step as a whole, or about what it does not change.
constexpr std::array<std::string_view, 5> kOfSteps = {"partition", "assign_devices", "recompute", "offload",
                                                      "fold_constants"};

// A lowered graph as calls of kernels.
class Program {
 public:
  Program(const Graph& graph, const PassContext& context)
      : graph_(graph), context_(context), lying_(windows(graph)), number_(graph.values().size(), -1) {}

  AttrGraph run() {
    SLUICE_CHECK_KIND(kRuntime, graph_.variables().empty(), "a body has variables; a pass must not make any");
    for (const graph::Input& input : graph_.inputs()) number_[input.value] = program_.inputs++;
    next_ = program_.inputs;
    for (const Node& node : graph_.nodes())
      if (!node.op->view) add(node);
    for (const graph::Output& output : graph_.outputs()) program_.outputs.push_back(number_of(output.value));
    return std::move(program_);
  }

 private:
  void add(const Node& node) {
    const plan::KernelQuery query = kernel_query(graph_, node, lying_, context_);
    AttrCall call{query.op, query.attrs, {}, query.outputs};
    for (const ValueId input : node.inputs) call.operands.push_back(number_of(input));
    program_.calls.push_back(std::move(call));
    for (const ValueId output : node.outputs) number_[output] = next_++;
  }

  int number_of(ValueId value) {
    if (value == kNoValue) return kNoOperand;
    if (number_[value] >= 0) return number_[value];
    const Window& window = lying_[value];
    if (window.offset == 0 && window.spec == lying_[window.root].spec) return number_[value] = number_[window.root];
    program_.calls.push_back(
        {plan::kWindow, {{"offset", static_cast<int64_t>(window.offset)}}, {number_[window.root]}, {window.spec}});
    return number_[value] = next_++;
  }

  const Graph& graph_;
  const PassContext& context_;
  const std::vector<Window> lying_;  // per value
  std::vector<int> number_;          // per value, in the program
  int next_ = 0;
  AttrGraph program_;
};

}  // namespace

Graph graph_of_body(const AttrGraph& body, const std::vector<TensorType>& types, graph::NodeContext context,
                    const DeviceId& device) {
  Graph graph;
  graph::GraphBuilder builder(graph, device);
  builder.context = std::move(context);
  builder.context.every = 1;
  builder.context.region = 0;
  builder.context.placement.device = device;
  std::vector<Value> inputs;
  for (const TensorType& type : types)
    inputs.push_back(builder.value(graph.add_input(fmt::format("taken{}", inputs.size()), type)));
  const ExecutorScope scope(builder);
  const GradMode off(false);
  size_t number = 0;
  for (const Value& output : call_nested(body, inputs))
    graph.add_output(fmt::format("given{}", number++), builder.id(output));
  return graph;
}

AttrGraph compile_body(Graph graph, const PassContext& outer, const DeviceId& device) {
  CompileOptions options = outer.options;
  options.device = device;
  options.devices.clear();
  Partition beside;  // what a body takes and gives lies where its loop runs
  plan::Shard shard;
  shard.device = device;
  beside.inputs.assign(graph.inputs().size(), shard);
  beside.outputs.assign(graph.outputs().size(), shard);
  PassContext context{outer.target, options, outer.lookup, outer.evaluate, outer.constants, beside};
  const auto left_out = [&](const Pass& pass) {
    const auto& disabled = options.disabled_passes;
    return std::find(kOfSteps.begin(), kOfSteps.end(), pass.name) != kOfSteps.end() ||
           std::find(disabled.begin(), disabled.end(), pass.name) != disabled.end();
  };
  for (const Pass& pass : graph_passes())
    if (!left_out(pass)) pass.run(graph, context);
  for (const LoweringPass& pass : lowering_passes()) {
    pass.run(graph, context);
    if (pass.verify != nullptr) pass.verify(graph, context);
  }
  return Program(graph, context).run();
}

}  // namespace sluice::compiler
