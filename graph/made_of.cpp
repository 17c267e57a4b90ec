#include "graph/made_of.h"

#include <set>

#include "graph/autodiff/tape.h"
#include "graph/builder.h"

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

}  // namespace sluice::graph
