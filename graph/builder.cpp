#include "graph/builder.h"

namespace sluice::graph {

std::vector<Value> GraphBuilder::call(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs) {
  Node node;
  node.op = &op;
  node.attrs = attrs;
  node.inputs.reserve(inputs.size());
  for (const Value& input : inputs) node.inputs.push_back(id(input));
  node.placement = context.placement;
  static_cast<Provenance&>(node) = context;
  node.quota = context.quota;
  node.every = context.every;
  const int index = graph_.add_node(std::move(node));
  on_node(index);
  const DeviceId device = context.placement.device.value_or(default_device_);
  std::vector<Value> outputs;
  for (ValueId output : graph_.nodes()[index].outputs) outputs.push_back(make_value(output, device));
  return outputs;
}

void GraphBuilder::assign(const Value&, const Value&) {
  fail(ErrorKind::kUnsupported, "assign: a graph under construction is functional; write with ordinary ops");
}

Value GraphBuilder::detach(const Value& value) { return make_value(id(value), value.device()); }

Value GraphBuilder::value(ValueId id) {
  const ValueInfo& info = graph_.values().at(id);
  DeviceId device = default_device_;
  if (info.kind == ValueKind::kNode) device = graph_.nodes()[info.index].placement.device.value_or(device);
  return make_value(id, device);
}

ValueId GraphBuilder::id(const Value& value) {
  if (!value.defined()) return kNoValue;
  const auto* traced = dynamic_cast<const GraphValue*>(value.impl());
  return traced && &traced->graph() == &graph_ ? traced->id() : import_value(value);
}

ValueId GraphBuilder::import_value(const Value& value) {
  fail(ErrorKind::kValue, "graph '{}': a value from outside was used: {}; only values of this graph can be",
       graph_.name, value.type().str());
}

Value GraphBuilder::make_value(ValueId id, DeviceId device) {
  return Value(std::make_shared<GraphValue>(graph_, id, device));
}

}  // namespace sluice::graph
