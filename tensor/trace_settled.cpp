// Numbers that build() asks for, where they follow from what no step changes.
#include <map>
#include <set>

#include "graph/tape.h"
#include "tensor/eager_memory.h"
#include "tensor/trace_executor.h"

namespace sluice {
namespace {

using graph::kNoValue;
using graph::ValueId;

// A number is made of few others; whoever computes more wants it in the graph.
constexpr size_t kMostNodes = 256;
constexpr int64_t kMostElements = 4096;

}  // namespace

// The present contents of a variable of the graph, if it is a constant, or a buffer that the graph has not written to.
Value TraceExecutor::content_of(int index, std::set<TraceVariable*>& read) {
  if (const Tensor* const constant = constants_.find(graph_.variables()[static_cast<size_t>(index)].name))
    return *constant;
  for (TraceVariable* variable : variables_.used()) {
    if (variable->index != index) continue;
    const Tensor& tensor = variable->tensor;
    const bool as_it_was = variable->cell->current == variable->laid && variable->laid == variable->initial;
    if (!as_it_was || variable->random || tensor.requires_grad() || tensor.device() != DeviceId{}) return {};
    read.insert(variable);
    return eager_.copy(tensor);  // no variable of the graph
  }
  return {};
}

Value TraceExecutor::settled(const Value& value) {
  if (regions_.any()) return {};  // values stand for others there
  std::map<ValueId, Value> known;
  std::set<int> nodes;
  std::set<TraceVariable*> read;
  const ValueId wanted = current_id(value);
  std::vector<ValueId> todo{wanted};
  while (!todo.empty()) {
    const ValueId id = todo.back();
    todo.pop_back();
    if (id == kNoValue || known.contains(id)) continue;
    const graph::ValueInfo& info = graph_.values()[static_cast<size_t>(id)];
    if (info.kind == graph::ValueKind::kInput || numel(info.type.shape) > kMostElements) return {};
    if (info.kind == graph::ValueKind::kVariable) {
      const Value content = content_of(info.index, read);
      if (!content.defined()) return {};
      known.emplace(id, content);
      continue;
    }
    const graph::Node& node = graph_.nodes()[static_cast<size_t>(info.index)];
    if (node.op->random || node.op->host || node.op->effectful) return {};
    if (!nodes.insert(info.index).second) continue;
    if (nodes.size() > kMostNodes) return {};
    todo.insert(todo.end(), node.inputs.begin(), node.inputs.end());
  }
  const ExecutorScope now(eager_);
  const GradMode off(false);
  for (const int n : nodes) {
    const graph::Node& node = graph_.nodes()[static_cast<size_t>(n)];
    std::vector<Value> inputs;
    for (const ValueId input : node.inputs) inputs.push_back(input == kNoValue ? Value() : known.at(input));
    const std::vector<Value> made = eager_.call(*node.op, inputs, node.attrs);
    for (size_t o = 0; o < made.size(); ++o) known.insert_or_assign(node.outputs[o], made[o]);
  }
  for (TraceVariable* variable : read) {
    variable->settled = true;
    constants_.take(variable->tensor);
  }
  return known.at(wanted);
}

void TraceExecutor::check_settled() {
  for (const TraceVariable* variable : variables_.used())
    SLUICE_CHECK_KIND(
        kRuntime, !variable->settled || variable->cell->current == variable->laid,
        "graph '{}': build() has asked for a number that follows from '{}', which a step changes; compute "
        "with tensors instead, or let the step leave it as it is",
        graph_.name, variable->name);
}

}  // namespace sluice
