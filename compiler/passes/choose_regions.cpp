// Regions (Provenance::region) for options.auto_memory: what the pass `recompute` computes again although nobody has
// asked for a checkpoint. Nodes that belong to one keep it.
//   "slight": of the whole forward pass, but products and convolutions, which take long, are kept;
//   "moderate": of stretches of it, as many as give little to keep between them and in the longest of them (the square
//   root of Chen et al., see recompute.cpp), but products and convolutions in them are kept;
//   "heavy": the same stretches, of which only what goes into them is kept.
// Values behind the last stretch are read at once, and are kept.
#include <algorithm>
#include <cmath>

#include "compiler/collectives.h"
#include "compiler/pass.h"

namespace sluice::compiler {
namespace {

using graph::Graph;
using graph::Node;

bool is_forward(const Node& node) { return node.role == Role::kForward; }

bool takes_long(const Node& node) { return node.op->precision != OpDef::Precision::kNone; }

uint64_t bytes_made(const Graph& graph, const Node& node) {
  if (node.op->view) return 0;
  uint64_t bytes = 0;
  for (const graph::ValueId output : node.outputs) bytes += bytes_of(graph.type(output));
  return bytes;
}

}  // namespace

int choose_regions(Graph& graph, PassContext& context) {
  const std::string& level = context.options.auto_memory;
  std::vector<Node>& nodes = graph.mutable_nodes();
  const bool trains =
      std::any_of(nodes.begin(), nodes.end(), [](const Node& node) { return node.role == Role::kBackward; });
  if (level == "disable" || !trains) return 0;
  uint64_t all = 0;
  int count = 0, last = 0;
  for (const Node& node : nodes) {
    last = std::max(last, node.region);
    if (!is_forward(node)) continue;
    all += bytes_made(graph, node);
    count += bytes_made(graph, node) > 0;
  }
  const double stretches = level == "slight" ? 1 : std::max(2.0, std::floor(std::sqrt(static_cast<double>(count))));
  uint64_t before = 0;
  int chosen = 0;
  for (Node& node : nodes) {
    if (!is_forward(node)) continue;
    const double at = static_cast<double>(before) / static_cast<double>(std::max<uint64_t>(all, 1)) * stretches;
    before += bytes_made(graph, node);
    const int stretch = std::min(static_cast<int>(at), static_cast<int>(stretches) - 1);
    if (node.region != 0 || (level != "slight" && stretch == static_cast<int>(stretches) - 1)) continue;
    node.region = last + 1 + stretch;
    node.kept = level != "heavy" && takes_long(node);
    ++chosen;
  }
  return chosen;
}

}  // namespace sluice::compiler
