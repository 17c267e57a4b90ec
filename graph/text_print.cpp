// Graph -> text. One definition per line, in the order of value ids; see text_parse.cpp for the grammar.
#include "graph/graph.h"

namespace sluice::graph {
namespace {

std::string quoted(const std::string& text) { return attr_str(Attr(text)); }

template <class Items, class Format>
std::string join(const Items& items, Format format) {
  std::string s;
  for (size_t i = 0; i < items.size(); ++i) s += (i ? ", " : "") + format(i);
  return s;
}

std::string value_name(ValueId id) { return id == kNoValue ? "none" : fmt::format("%{}", id); }

std::vector<std::string> placement_parts(const Placement& placement) {
  std::vector<std::string> parts;
  if (placement.device) parts.push_back("device " + quoted(placement.device->str()));
  if (!placement.stream.empty()) parts.push_back("stream " + quoted(placement.stream));
  return parts;
}

std::string in_brackets(const std::vector<std::string>& parts) {
  return parts.empty() ? "" : " [" + join(parts, [&](size_t i) { return parts[i]; }) + "]";
}

std::string annotations(const Node& node) {
  std::vector<std::string> parts = placement_parts(node.placement);
  if (node.quota) parts.push_back(fmt::format("quota {}", node.quota));
  if (node.every != 1) parts.push_back(fmt::format("every {}", node.every));
  if (node.for_all) parts.emplace_back("for_all");
  if (node.role != Role::kForward) parts.push_back("role " + quoted(role_name(node.role)));
  if (node.region != 0) parts.push_back(fmt::format("region {}", node.region));
  if (node.kept) parts.emplace_back("kept");
  if (node.placed != Placed::kDefault) parts.push_back("placed " + quoted(placed_name(node.placed)));
  if (!node.module.empty()) parts.push_back("module " + quoted(node.module));
  if (node.source.known()) parts.push_back("source " + quoted(node.source.str()));
  return in_brackets(parts);
}

std::string annotations(const Placement& placement) { return in_brackets(placement_parts(placement)); }

std::string extent_text(const std::optional<ExtentOf>& extent) {
  return extent ? fmt::format(" extent_of({}, {}, {})", quoted(extent->output), extent->axis, quoted(extent->dim)) : "";
}

std::string axes_text(const std::vector<int>& axes) {
  return axes.empty() ? "" : fmt::format(" axes({})", fmt::join(axes, ", "));
}

std::string type_of(const Graph& graph, ValueId id) {
  const ValueInfo& value = graph.values()[id];
  return value.type.str() + (value.strides.empty() ? "" : " strides " + value.strides.str());
}

std::string node_line(const Graph& graph, const Node& node) {
  std::string s;
  if (!node.outputs.empty()) s = join(node.outputs, [&](size_t i) { return value_name(node.outputs[i]); }) + " = ";
  s += fmt::format("{}({})", node.op->name, join(node.inputs, [&](size_t i) { return value_name(node.inputs[i]); }));
  if (!node.attrs.empty()) {
    const auto attr = [&](size_t i) {
      return fmt::format("{} = {}", node.op->params[i].name, attr_str(node.attrs[i]));
    };
    s += " {" + join(node.attrs, attr) + "}";
  }
  if (!node.outputs.empty()) s += " : " + join(node.outputs, [&](size_t i) { return type_of(graph, node.outputs[i]); });
  return s + annotations(node);
}

}  // namespace

std::string to_text(const Graph& graph) {
  std::string text = fmt::format("graph {} {{\n", quoted(graph.name));
  if (const int batches = graph.micro_batches(); batches > graph.micro_batches_of_values())
    text += fmt::format("  micro_batches {}\n", batches);
  size_t next_node = 0;
  const auto print_nodes_up_to = [&](size_t end) {
    for (; next_node < end; ++next_node) text += "  " + node_line(graph, graph.nodes()[next_node]) + "\n";
  };
  const auto& values = graph.values();
  for (size_t id = 0; id < values.size(); ++id) {
    const ValueInfo& v = values[id];
    if (v.kind == ValueKind::kNode) {
      print_nodes_up_to(v.index + 1);
      continue;
    }
    const bool input = v.kind == ValueKind::kInput;
    const char* kind = input ? "input" : graph.variables()[v.index].constant ? "constant" : "variable";
    const std::string& name = input ? graph.inputs()[v.index].name : graph.variables()[v.index].name;
    const Placement& placement = input ? graph.inputs()[v.index].placement : graph.variables()[v.index].placement;
    text += fmt::format("  %{} = {} {} : {}{}\n", id, kind, quoted(name), v.type.str(), annotations(placement));
  }
  print_nodes_up_to(graph.nodes().size());
  for (const Output& o : graph.outputs())
    text += fmt::format("  output {} = %{}{}{}{}\n", quoted(o.name), o.value, extent_text(o.extent_of),
                        axes_text(o.axes), annotations(o.placement));
  for (const Variable& v : graph.variables()) {
    if (v.update != kNoValue) text += fmt::format("  update {} = %{}\n", quoted(v.name), v.update);
  }
  return text + "}\n";
}

}  // namespace sluice::graph
