#include "graph/rewriter.h"

namespace sluice::graph {

Rewriter::Rewriter(Graph& source, const std::vector<bool>* keep_variable)
    : source_(source), map_(source.values().size(), kNoValue), variable_map_(source.variables().size(), -1) {
  target_.name = source.name;
  target_.reserve(source.nodes().size(), source.values().size());
  target_.set_micro_batches(source.micro_batches());
  for (size_t i = 0; i < source.inputs().size(); ++i) {
    const Input& input = source.inputs()[i];
    map(input.value, target_.add_input(input.name, source.type(input.value)));
    target_.place_input(static_cast<int>(i), input.placement);
  }
  for (size_t i = 0; i < source.variables().size(); ++i) {
    const Variable& v = source.variables()[i];
    if (keep_variable && !(*keep_variable)[i]) continue;
    variable_map_[i] = static_cast<int>(target_.variables().size());
    map(v.value, target_.add_variable(v.name, source.type(v.value), v.constant));
    target_.place_variable(variable_map_[i], v.placement);
  }
}

int Rewriter::take(int index) {
  const Node& old = source_.nodes()[index];
  ValueIds inputs = old.inputs;
  for (ValueId& input : inputs) input = (*this)[input];
  const int taken = target_.take_node(source_, index, std::move(inputs));
  for (size_t i = 0; i < old.outputs.size(); ++i) {
    const ValueId output = target_.nodes()[taken].outputs[i];
    map(old.outputs[i], output);
    if (const Strides& strides = source_.values()[old.outputs[i]].strides; !strides.empty())
      target_.set_strides(output, strides);
  }
  return taken;
}

Graph Rewriter::finish() {
  for (size_t i = 0; i < source_.outputs().size(); ++i) {
    const Output& output = source_.outputs()[i];
    target_.add_output(output.name, (*this)[output.value], output.extent_of, output.axes);
    target_.place_output(static_cast<int>(i), output.placement);
  }
  for (size_t i = 0; i < source_.variables().size(); ++i) {
    const Variable& v = source_.variables()[i];
    if (v.update == kNoValue || variable_map_[i] < 0) continue;
    const ValueId update = (*this)[v.update];
    if (update != (*this)[v.value]) target_.set_update(variable_map_[i], update);  // itself: nothing changes
  }
  return std::move(target_);
}

}  // namespace sluice::graph
