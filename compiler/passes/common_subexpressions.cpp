// Computes equal expressions once: same op, attributes, inputs, placement and rate. Random and effectful ops are left
// alone.
#include <iterator>
#include <unordered_map>

#include "compiler/pass.h"
#include "graph/rewriter.h"

namespace sluice::compiler {
namespace {

std::string key_of(const graph::Node& node, const graph::Rewriter& rewriter) {
  std::string key = node.op->name;
  for (graph::ValueId input : node.inputs) fmt::format_to(std::back_inserter(key), ",{}", rewriter[input]);
  for (const Attr& attr : node.attrs) fmt::format_to(std::back_inserter(key), ";{}:{}", attr.index(), attr_str(attr));
  if (node.placement.device) key += "@" + node.placement.device->str();
  return fmt::format("{}/{}*{}", key, node.placement.stream, node.every);
}

}  // namespace

int common_subexpressions(graph::Graph& graph, PassContext&) {
  graph::Rewriter rewriter(graph);
  std::unordered_map<std::string, int> seen;  // expression -> node of the new graph
  int removed = 0;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const graph::Node& node = graph.nodes()[i];
    if (node.op->random || node.op->effectful) {
      rewriter.copy(static_cast<int>(i));
      continue;
    }
    const auto [it, fresh] = seen.try_emplace(key_of(node, rewriter), -1);
    if (fresh) {
      it->second = rewriter.copy(static_cast<int>(i));
      continue;
    }
    ++removed;
    graph::Node& same = rewriter.target().mutable_nodes()[it->second];
    static_cast<Provenance&>(same) = merged(same, node);
    for (size_t o = 0; o < node.outputs.size(); ++o) rewriter.map(node.outputs[o], same.outputs[o]);
  }
  if (removed) graph = rewriter.finish();
  return removed;
}

}  // namespace sluice::compiler
