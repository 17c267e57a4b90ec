#include "tools/plan_viz/partition.h"

#include <map>
#include <set>

#include "base/log.h"
#include "compiler/compiler.h"
#include "plan/json/json.h"
#include "tools/plan_viz/any_machine.h"
#include "tools/plan_viz/text.h"

namespace sluice::plan_viz {
namespace {

std::string where_of(const Offload::Node& node) {
  return node.module.empty() ? node.source : node.source.empty() ? node.module : node.module + "  " + node.source;
}

std::string text_of(const Offload& offload, bool why, const TextOptions& options) {
  std::map<int, std::pair<int, double>> clusters;  // nodes and flops
  std::map<int, std::map<std::string, int>> ops;
  for (const Offload::Node& node : offload.nodes) {
    if (node.cluster < 0) continue;
    auto& [count, flops] = clusters[node.cluster];
    ++count;
    flops += node.flops;
    ++ops[node.cluster][node.op];
  }
  std::vector<std::vector<std::string>> rows = {{"cluster", "nodes", "flops", "ops"}};
  for (const auto& [cluster, sum] : clusters) {
    std::string names;
    for (const auto& [op, count] : ops[cluster])
      names += (names.empty() ? "" : ", ") + (count > 1 ? fmt::format("{} x {}", count, op) : op);
    rows.push_back({std::to_string(cluster), std::to_string(sum.first), fmt::format("{:.3g}", sum.second), names});
  }
  std::string text = offload.line() + "\n";
  if (!clusters.empty()) text += table(rows, {true, true, true, false}, options.width);
  if (!why) return text;
  std::vector<std::vector<std::string>> left = {{"not taken", "why", "where"}};
  for (const Offload::Node& node : offload.nodes)
    if (node.cluster < 0) left.push_back({node.op, node.reason, where_of(node)});
  return left.size() == 1 ? text + "every node is taken\n" : text + table(left, {false, false, false}, options.width);
}

std::string json_of(const Offload& offload) {
  std::string s = fmt::format("{{\"backend\": {}, \"version\": {}, \"line\": {}, \"clusters\": {}, \"nodes\": [",
                              plan::quoted_json(offload.backend), plan::quoted_json(offload.version),
                              plan::quoted_json(offload.line()), offload.clusters);
  const char* comma = "";
  for (const Offload::Node& node : offload.nodes) {
    s += fmt::format(
        "{}\n  {{\"op\": {}, \"module\": {}, \"source\": {}, \"flops\": {}, \"cluster\": {}, \"reason\": {}}}", comma,
        plan::quoted_json(node.op), plan::quoted_json(node.module), plan::quoted_json(node.source), node.flops,
        node.cluster < 0 ? "null" : std::to_string(node.cluster), plan::quoted_json(node.reason));
    comma = ",";
  }
  return s + "]}\n";
}

// Nodes of a cluster have one colour; neighbours' colours are far apart on the wheel.
std::string colour_of(int cluster) {
  constexpr double kGolden = 0.61803398875;
  const double hue = cluster * kGolden - static_cast<int>(cluster * kGolden);
  return fmt::format("\"{:.3f} 0.35 0.95\"", hue);
}

// `graph` is that which the backend was asked about: its nodes are those of the report.
std::string dot_of(const graph::Graph& graph, const Offload& offload) {
  std::string s = fmt::format("digraph {} {{\n  node [shape=box, style=\"rounded,filled\", fillcolor=white];\n",
                              plan::quoted_json(graph.name));
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Offload::Node& node = offload.nodes[i];
    const std::string label = node.module.empty() ? node.op : node.op + "\n" + node.module;
    s += fmt::format("  n{} [label={}{}];\n", i, plan::quoted_json(label),
                     node.cluster < 0 ? fmt::format(", tooltip={}", plan::quoted_json(node.reason))
                                      : fmt::format(", fillcolor={}, tooltip=\"cluster {}\"", colour_of(node.cluster),
                                                    node.cluster));
  }
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    std::set<int> made;
    for (const graph::ValueId input : graph.nodes()[i].inputs)
      if (input != graph::kNoValue && graph.values()[static_cast<size_t>(input)].kind == graph::ValueKind::kNode)
        made.insert(graph.values()[static_cast<size_t>(input)].index);
    for (const int from : made) s += fmt::format("  n{} -> n{};\n", from, i);
  }
  return s + "}\n";
}

}  // namespace

std::string partition_view(graph::Graph graph, const PartitionOptions& options, const TextOptions& text, bool json) {
  set_log("error");  // the line of the report is what is printed here
  const AnyMachine machine;
  CompileOptions compile_options;
  compile_options.name = graph.name;
  compile_options.backend = options.backend;
  compile_options.backend_options = options.options;
  compile_options.until = "offload";
  const CompileResult result = compile(graph, machine, compile_options);
  if (json) return json_of(result.offload);
  if (!options.dot) return text_of(result.offload, options.why, text);
  CompileOptions before = compile_options;  // the graph that the backend was asked about
  before.backend = "";
  return dot_of(compile(std::move(graph), machine, before).graph, result.offload);
}

}  // namespace sluice::plan_viz
