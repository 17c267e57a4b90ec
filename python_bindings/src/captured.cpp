// A traced graph, to look at, to evaluate op by op, and as a part of a pattern.
#include <nanobind/stl/tuple.h>

#include "bindings.h"
#include "graph/executor.h"
#include "graph/tape.h"
#include "graph_object.h"
#include "plan/extents.h"
#include "tensor/eager.h"
#include "tensor/trace.h"

namespace sluice::python {
namespace {

nb::list describe_types(const graph::Graph& graph, std::span<const graph::ValueId> values) {
  nb::list list;
  for (graph::ValueId value : values)
    list.append(value == graph::kNoValue ? nb::none() : nb::cast(graph.type(value).str()));
  return list;
}

// The facts about each node that debug output and print(graph) show.
nb::list describe_nodes(const graph::Graph& graph) {
  nb::list list;
  for (const graph::Node& node : graph.nodes()) {
    nb::dict d;
    d["op"] = node.op->name;
    d["module"] = node.module;
    d["role"] = role_name(node.role);
    d["source"] = node.source.str();
    d["device"] = node.placement.device ? node.placement.device->str() : "";
    d["stream"] = node.placement.stream;
    d["inputs"] = describe_types(graph, node.inputs);
    d["outputs"] = describe_types(graph, node.outputs);
    nb::list attrs;
    for (size_t i = 0; i < node.attrs.size(); ++i)
      attrs.append(std::string(node.op->params[i].name) + "=" + attr_str(node.attrs[i]));
    d["attrs"] = attrs;
    list.append(d);
  }
  return list;
}

// The work of each node and the bytes it moves; views do neither.
nb::list describe_costs(const graph::Graph& graph) {
  nb::list list;
  for (const graph::Node& node : graph.nodes()) {
    const Cost cost = node.op->view != nullptr ? Cost{} : graph.cost(node);
    nb::dict d;
    d["op"] = node.op->name;
    d["module"] = node.module;
    d["role"] = role_name(node.role);
    d["source"] = node.source.str();
    d["flops"] = cost.flops;
    d["bytes"] = cost.bytes;
    list.append(d);
  }
  return list;
}

// The nodes from which the operands of each node come.
std::vector<std::vector<int>> operands_of(const graph::Graph& graph) {
  std::vector<std::vector<int>> operands;
  for (const graph::Node& node : graph.nodes()) {
    std::vector<int>& from = operands.emplace_back();
    for (graph::ValueId input : node.inputs)
      if (input != graph::kNoValue && graph.values()[input].kind == graph::ValueKind::kNode)
        from.push_back(graph.values()[input].index);
  }
  return operands;
}

// For each output that callers see, the node that makes it and which of its values it is; none for inputs and
// variables.
std::vector<std::optional<std::pair<int, int>>> sources_of(const graph::Graph& graph) {
  std::vector<std::optional<std::pair<int, int>>> sources;
  std::vector<plan::NamedType> outputs;
  for (const graph::Output& o : graph.outputs()) outputs.push_back({o.name, graph.type(o.value), o.extent_of});
  for (const plan::NamedType& visible : plan::visible(outputs)) {
    for (const graph::Output& o : graph.outputs()) {
      if (o.name != visible.name) continue;
      const graph::ValueInfo& value = graph.values()[o.value];
      sources.emplace_back();
      if (value.kind == graph::ValueKind::kNode) sources.back() = {value.index, value.output};
    }
  }
  return sources;
}

std::vector<std::vector<Value>> evaluate(const CapturedGraph& captured, const std::vector<Value>& inputs) {
  const graph::Graph& graph = captured.graph;
  if (inputs.size() != graph.inputs().size())
    fail(ErrorKind::kValue, "evaluate: got {} inputs; the graph has {}", inputs.size(), graph.inputs().size());
  const ExecutorScope now(default_eager());
  const GradMode off(false);
  std::vector<Value> values(graph.values().size());
  for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs()[i].value] = inputs[i];
  for (const graph::Variable& v : graph.variables()) values[v.value] = captured.variables.at(v.name);
  std::vector<std::vector<Value>> made;
  for (const graph::Node& node : graph.nodes()) {
    if (node.op->host || node.op->of_all || node.every != 1)
      fail(ErrorKind::kUnsupported, "evaluate: op {} ({}) cannot run by itself", node.op->name, node.source.str());
    std::vector<Value> operands;
    for (graph::ValueId input : node.inputs) operands.push_back(input == graph::kNoValue ? Value() : values[input]);
    made.push_back(sluice::call(*node.op, operands, node.attrs));
    for (size_t o = 0; o < node.outputs.size(); ++o) values[node.outputs[o]] = made.back()[o];
  }
  return made;
}

PyCaptured probe(const PyCaptured& captured, int node, int output) {
  PyCaptured copy = captured;
  for (auto& [name, tensor] : copy.graph.variables) {
    const ExecutorScope now(default_eager());
    const GradMode off(false);
    tensor = tensor.clone();
  }
  if (node >= 0) copy.graph.graph.add_output("probe", copy.graph.graph.nodes().at(node).outputs.at(output));
  return copy;
}

std::map<std::string, std::vector<std::byte>> contents_of(const CapturedGraph& captured) {
  std::map<std::string, std::vector<std::byte>> contents;
  for (const graph::Variable& v : captured.graph.variables()) {
    const TensorType& type = captured.graph.type(v.value);
    std::vector<std::byte>& bytes = contents[v.name];
    bytes.resize(checked_bytes(type.shape, dtype_size(type.dtype)));
    captured.variables.at(v.name).copy_to_host(bytes.data());
  }
  return contents;
}

}  // namespace

Pattern pattern_of(nb::handle pattern) {
  const auto [name, before, after] = nb::cast<std::tuple<std::string, nb::object, nb::object>>(pattern);
  const CapturedGraph &from = nb::cast<const PyCaptured&>(before).graph, &to = nb::cast<const PyCaptured&>(after).graph;
  return {name, from.graph, to.graph, contents_of(from), contents_of(to)};
}

void bind_captured(nb::module_& m) {
  nb::class_<TakenContents>(m, "TakenContents", "Eager tensors whose contents a graph has as constants.")
      .def(nb::init<>())
      .def(
          "add",
          [](TakenContents& taken, const Value& t) { taken.add(*std::static_pointer_cast<TensorImpl>(t.ptr())); },
          nb::arg("tensor"))
      .def("changed", &TakenContents::changed, "Whether one of them has been written to since.");
  nb::class_<PyCaptured>(m, "Captured", "A traced graph and the tensors behind its variables.")
      .def("text", [](const PyCaptured& c) { return graph::to_text(c.graph.graph); })
      .def_prop_ro("ordered", [](const PyCaptured& c) { return c.graph.ordered; })
      .def("nodes", [](const PyCaptured& c) { return describe_nodes(c.graph.graph); })
      .def_ro("stacks", &PyCaptured::stacks)
      .def_prop_ro("taken", [](const PyCaptured& c) { return c.graph.taken; })
      .def("outputs",
           [](const PyCaptured& c) {
             std::vector<plan::NamedType> outputs;
             for (const graph::Output& o : c.graph.graph.outputs())
               outputs.push_back({o.name, c.graph.graph.type(o.value), o.extent_of});
             nb::list list;
             for (const plan::NamedType& o : plan::visible(outputs))
               list.append(nb::make_tuple(o.name, o.type.dtype, o.type.shape));
             return list;
           })
      .def("variables",
           [](const PyCaptured& c) {
             nb::dict d;
             for (const graph::Variable& v : c.graph.graph.variables()) {
               nb::dict entry;
               entry["type"] = c.graph.graph.type(v.value).str();
               entry["constant"] = v.constant;
               entry["updated"] = v.update != graph::kNoValue;
               d[v.name.c_str()] = entry;
             }
             return d;
           })
      .def("costs", [](const PyCaptured& c) { return describe_costs(c.graph.graph); })
      .def("operands", [](const PyCaptured& c) { return operands_of(c.graph.graph); })
      .def("sources", [](const PyCaptured& c) { return sources_of(c.graph.graph); })
      .def(
          "evaluate", [](const PyCaptured& c, const std::vector<Value>& inputs) { return evaluate(c.graph, inputs); },
          nb::arg("inputs"),
          "What each node computes of these inputs, now, one op after the other; variables stay as they are.")
      .def(
          "probe", [](const PyCaptured& c, int node, int output) { return probe(c, node, output); }, nb::arg("node"),
          nb::arg("output"),
          "The graph with variables of its own, and an output more, \"probe\", unless `node` is -1.");
}

}  // namespace sluice::python
