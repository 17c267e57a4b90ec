// Makes kernels of loops: the body goes through the passes of graphs and of lowering as any graph does, and becomes a
// list of kernel calls with windows on each other's memory, which kernel "loop" runs turn by turn. Loops are left as
// they are for a device that has no such kernel, and decompose() unrolls them.
#include "graph/ops/loops.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>

#include "compiler/lowering/lowering.h"
#include "compiler/lowering/windows.h"
#include "compiler/pass.h"
#include "graph/nested.h"
#include "graph/rewriter.h"
#include "graph/tape.h"
#include "plan/loop_program.h"

namespace sluice::compiler {
namespace {

using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::ValueId;

// Passes that are about a step as a whole, or about what it does not change.
constexpr std::array<std::string_view, 4> kOfSteps = {"partition", "assign_devices", "recompute", "fold_constants"};

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

Graph graph_of(const AttrGraph& body, const std::vector<TensorType>& types, const Node& node, const DeviceId& device) {
  Graph graph;
  graph::GraphBuilder builder(graph, device);
  builder.context = graph::Rewriter::context_of(node);
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

// A lowered graph as calls of kernels.
class Program {
 public:
  Program(const Graph& graph, const PassContext& context)
      : graph_(graph), context_(context), lying_(windows(graph)), number_(graph.values().size(), -1) {}

  AttrGraph run() {
    SLUICE_CHECK_KIND(kRuntime, graph_.variables().empty(), "loops: a body has variables; a pass must not make any");
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
    Graph turn =
        graph_of(body, taken_by_turn(graph, node, std::get<int64_t>(states), std::get<int64_t>(rows)), node, device);
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
