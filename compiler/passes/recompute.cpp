// Values of a checkpoint (Provenance::region) that the backward pass reads are computed again right before it does, so
// that they need not be kept since the forward pass. Values of a region that other parts of the forward pass read are
// kept, and so are those that its policy keeps: from these, and from what went into the region, the rest is made again,
// bit by bit the same.
//
// Method: T. Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016; which values to keep is the user's
// choice.
#include <algorithm>
#include <set>
#include <utility>

#include "compiler/collectives.h"
#include "compiler/pass.h"
#include "graph/rewriter.h"

namespace sluice::compiler {
namespace {

using graph::Graph;
using graph::Node;
using graph::ValueId;
using graph::ValueIds;

class Recompute {
 public:
  explicit Recompute(Graph& graph) : graph_(graph), again_(graph.values().size(), false) {
    for (const Node& node : graph.nodes())
      for (const ValueId output : node.outputs) again_[output] = may_run_twice(node);
    for (const graph::Output& output : graph.outputs()) again_[output.value] = false;
    for (const graph::Variable& variable : graph.variables())
      if (variable.update != graph::kNoValue) again_[variable.update] = false;
    for (const Node& node : graph.nodes()) {
      if (node.role == Role::kBackward || node.role == Role::kUpdate) continue;
      for (const ValueId input : node.inputs)
        if (input != graph::kNoValue && again_[input] && maker(input).region != node.region) again_[input] = false;
    }
  }

  int run() {
    if (std::none_of(again_.begin(), again_.end(), [](bool again) { return again; })) return 0;
    nodes_ = graph_.nodes();
    graph::Rewriter rewriter(graph_);
    int made = 0;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].role == Role::kBackward || nodes_[i].role == Role::kUpdate) {
        for (const int node : needed_by(nodes_[i])) {
          Node copy = nodes_[node];
          copy.role = Role::kRecompute;
          for (ValueId& input : copy.inputs) input = rewriter[input];
          const ValueIds outputs = std::exchange(copy.outputs, {});
          const int index = rewriter.target().add_node(std::move(copy));
          for (size_t o = 0; o < outputs.size(); ++o) {
            if (!again_[outputs[o]]) continue;
            rewriter.map(outputs[o], rewriter.target().nodes()[index].outputs[o]);
            again_[outputs[o]] = false;  // it has been
          }
          ++made;
        }
      }
      rewriter.take(static_cast<int>(i));
    }
    graph_ = rewriter.finish();
    return made;
  }

 private:
  static bool may_run_twice(const Node& node) {
    return node.region != 0 && !node.kept && node.role == Role::kForward && !node.op->effectful && !node.op->host &&
           !node.op->of_all && !is_collective(*node.op);
  }
  const Node& maker(ValueId value) const { return graph_.nodes()[graph_.values()[value].index]; }

  // The nodes that have to run again before `reader`, in order.
  std::set<int> needed_by(const Node& reader) const {
    std::set<int> needed;
    ValueIds open = reader.inputs;
    while (!open.empty()) {
      const ValueId value = open.back();
      open.pop_back();
      if (value == graph::kNoValue || !again_[value]) continue;
      const int node = graph_.values()[value].index;
      if (!needed.insert(node).second) continue;
      const ValueIds& inputs = nodes_[node].inputs;
      open.insert(open.end(), inputs.begin(), inputs.end());
    }
    return needed;
  }

  Graph& graph_;
  std::vector<Node> nodes_;  // as they were; the rewriter takes the graph's own apart
  std::vector<bool> again_;  // by value: it is to be computed again, and has not been yet
};

}  // namespace

int recompute(Graph& graph, PassContext&) { return Recompute(graph).run(); }

}  // namespace sluice::compiler
