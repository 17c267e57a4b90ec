// Makes one op of elementwise ops that follow one another, on devices whose kernel "fused" takes them: one launch and
// one pass over memory instead of many. A node joins the chain of its readers when they all are in one, of its shape.
#include <algorithm>
#include <map>

#include "compiler/pass.h"
#include "graph/ops/fused.h"
#include "graph/rewriter.h"

namespace sluice::compiler {
namespace {

using graph::Node;
using graph::ValueId;

constexpr int kAlone = -1;
constexpr size_t kMostSteps = 32;

// A chain ends in its root, the one node whose value is read elsewhere.
class Chains {
 public:
  Chains(const graph::Graph& graph, PassContext& context) : graph_(graph), context_(context) {
    const int num_nodes = static_cast<int>(graph.nodes().size());
    root_.assign(num_nodes, kAlone);
    std::vector<bool> step;
    for (const Node& node : graph.nodes()) step.push_back(can_be_step(node));
    if (std::count(step.begin(), step.end(), true) < 2) return;
    std::vector<std::vector<int>> readers(graph.values().size());
    for (int i = 0; i < num_nodes; ++i)
      for (ValueId input : graph.nodes()[i].inputs)
        if (input != graph::kNoValue) readers[input].push_back(i);
    for (const graph::Output& output : graph.outputs()) readers[output.value].push_back(kAlone);
    for (const graph::Variable& v : graph.variables())
      if (v.update != graph::kNoValue) readers[v.update].push_back(kAlone);
    for (int i = num_nodes - 1; i >= 0; --i) {  // readers come first
      if (!step[i]) continue;
      const int root = root_of_all(readers[graph.nodes()[i].outputs[0]]);
      root_[i] = root != kAlone && joins(i, root) ? root : i;
      members_[root_[i]].insert(members_[root_[i]].begin(), i);
    }
  }

  bool any() const {
    return std::any_of(members_.begin(), members_.end(), [](const auto& chain) { return chain.second.size() > 1; });
  }
  // The nodes of the chain that ends in `node`, in order; empty when it is not the end of one.
  std::vector<int> ending_in(int node) const {
    const auto it = members_.find(node);
    return it == members_.end() || it->second.size() < 2 ? std::vector<int>() : it->second;
  }
  bool is_inside(int node) const { return root_[node] != kAlone && root_[node] != node; }
  // What the chain reads, each once, in the order of reading.
  std::vector<ValueId> inputs_of(const std::vector<int>& members) const {
    std::vector<ValueId> inputs;
    for (int member : members)
      for (ValueId input : graph_.nodes()[member].inputs)
        if (!made_by(members, input) && std::find(inputs.begin(), inputs.end(), input) == inputs.end())
          inputs.push_back(input);
    return inputs;
  }

 private:
  bool made_by(const std::vector<int>& members, ValueId value) const {
    const graph::ValueInfo& info = graph_.values()[value];
    return info.kind == graph::ValueKind::kNode &&
           std::find(members.begin(), members.end(), info.index) != members.end();
  }

  bool can_be_step(const Node& node) const {
    const DeviceId device = context_.device_of(node);
    if (!ops::can_be_step(*node.op) || !context_.target.has_kernel("fused", device.kind)) return false;
    plan::KernelQuery query{node.op->name, name_attrs(*node.op, node.attrs), {}, {}, device};
    for (ValueId input : node.inputs) {
      if (input == graph::kNoValue) return false;
      query.inputs.push_back(TensorSpec::contiguous(graph_.type(input)));
    }
    query.outputs = {TensorSpec::contiguous(graph_.type(node.outputs[0]))};
    return context_.target.can_fuse(query);
  }

  int root_of_all(const std::vector<int>& readers) const {
    int root = kAlone;
    for (int reader : readers) {
      if (reader == kAlone || root_[reader] == kAlone || (root != kAlone && root_[reader] != root)) return kAlone;
      root = root_[reader];
    }
    return root;
  }

  bool joins(int node, int root) const {
    const Node &n = graph_.nodes()[node], &r = graph_.nodes()[root];
    std::vector<int> members = members_.at(root);
    members.insert(members.begin(), node);
    return n.placement == r.placement && n.quota == r.quota &&
           graph_.type(n.outputs[0]).shape == graph_.type(r.outputs[0]).shape && members.size() <= kMostSteps &&
           inputs_of(members).size() <= static_cast<size_t>(kMostFusedInputs);
  }

  const graph::Graph& graph_;
  PassContext& context_;
  std::vector<int> root_;  // per node: the end of its chain
  std::map<int, std::vector<int>> members_;
};

Node fuse(const graph::Rewriter& rewriter, const std::vector<int>& members, const std::vector<ValueId>& inputs) {
  const graph::Graph& source = rewriter.source();
  std::map<ValueId, int> number;  // of inputs and results
  Node node = source.nodes()[members.back()];
  node.op = &ops::fused_op();
  node.inputs.clear();
  node.outputs.clear();
  for (ValueId input : inputs) {
    number.emplace(input, static_cast<int>(number.size()));
    node.inputs.push_back(rewriter[input]);
  }
  AttrGraph body{.inputs = static_cast<int>(inputs.size()), .calls = {}, .outputs = {}};
  std::vector<const Provenance*> origins;
  for (int member : members) {
    const Node& step = source.nodes()[member];
    origins.push_back(&step);
    std::vector<int> operands;
    for (ValueId input : step.inputs) operands.push_back(number.at(input));
    body.calls.push_back({step.op->name, name_attrs(*step.op, step.attrs), std::move(operands)});
    number.emplace(step.outputs[0], static_cast<int>(number.size()));
  }
  static_cast<Provenance&>(node) = merged(node, origins);
  body.outputs = {static_cast<int>(number.size()) - 1};
  node.attrs = {std::move(body)};
  return node;
}

}  // namespace

int fuse_elementwise(graph::Graph& graph, PassContext& context) {
  const Chains chains(graph, context);
  if (!chains.any()) return 0;
  graph::Rewriter rewriter(graph);
  int fused = 0;
  for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i) {
    if (chains.is_inside(i)) continue;
    const std::vector<int> members = chains.ending_in(i);
    if (members.empty()) {
      rewriter.take(i);
      continue;
    }
    const int made = rewriter.target().add_node(fuse(rewriter, members, chains.inputs_of(members)));
    rewriter.map(graph.nodes()[i].outputs[0], rewriter.target().nodes()[made].outputs[0]);
    ++fused;
  }
  graph = rewriter.finish();
  return fused;
}

}  // namespace sluice::compiler
