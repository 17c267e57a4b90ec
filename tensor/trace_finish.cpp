// The end of a trace: updates of variables, outputs that tell lengths, and the graph with its tensors.
#include <algorithm>

#include "graph/extents.h"
#include "graph/ops/elementwise.h"
#include "graph/origin.h"
#include "graph/tape.h"
#include "plan/extents.h"
#include "tensor/trace_executor.h"

namespace sluice {

using graph::ValueId;

std::vector<graph::VaryingAxis> TraceExecutor::varying_axes(const Value& value) {
  const ValueId id = current_id(value);
  return graph::Extents(graph_, id).of(id);
}

void TraceExecutor::add_extents() {
  const graph::Extents extents(graph_);
  const std::vector<graph::Output> results = graph_.outputs();
  for (const graph::Output& result : results) {
    for (const graph::VaryingAxis& axis : extents.of(result.value)) {
      SLUICE_CHECK_KIND(kUnsupported, graph_.every(result.value) == graph_.every(axis.extent),
                        "graph '{}': result '{}' varies in length (axis {}, dim '{}') from micro-batch to micro-batch; "
                        "return what is there once a step",
                        graph_.name, result.name, axis.axis, axis.dim);
      std::string name = fmt::format("{}[{}={}]", result.name, axis.axis, axis.dim);
      while (std::any_of(results.begin(), results.end(), [&](const graph::Output& r) { return r.name == name; }))
        name += '\'';
      graph_.add_output(std::move(name), axis.extent, ExtentOf{result.name, axis.axis, axis.dim});
    }
  }
}

void TraceExecutor::set_updates() {
  const GradMode off(false);
  for (const TraceVariable* variable : variables_.used()) {
    if (variable->random) {
      const int64_t one_step[] = {0, 1};
      const OriginScope belongs(Role::kUpdate);
      const Value step = Tensor::from_host({DType::kInt64, {2}}, one_step);
      variable->cell->current = id(ops::add(handle(variable->initial, default_device_), step));
    }
    if (variable->cell->current != variable->laid) graph_.set_update(variable->index, variable->cell->current);
  }
}

CapturedGraph TraceExecutor::finish(const std::vector<std::pair<std::string, Value>>& outputs) {
  const GradMode off(false);
  for (const auto& [name, value] : outputs) graph_.add_output(name, id(value));
  check_settled();
  set_updates();
  add_extents();
  return capture();
}

CapturedGraph TraceExecutor::unfinished() {
  set_updates();
  return capture();
}

CapturedGraph TraceExecutor::capture() {
  autograd_.restore();
  CapturedGraph captured{std::move(graph_storage_), {}};
  captured.taken = constants_.give_taken();
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i]->strides_told || (inputs_[i]->strides_decide && inputs_[i]->written))
      captured.ordered.push_back(static_cast<int>(i));
  for (const TraceVariable* variable : variables_.used()) captured.variables[variable->name] = variable->tensor;
  constants_.give_tensors(captured.variables);
  return captured;
}

}  // namespace sluice
