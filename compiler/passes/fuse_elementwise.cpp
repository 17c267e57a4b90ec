// Makes one op of elementwise ops that follow one another, on devices whose kernel "fused" takes them: one launch and
// one pass over memory instead of many. A node joins the chain of its readers when they all are in one, of its shape.
#include <algorithm>
#include <map>
#include <string_view>

#include "compiler/pass.h"
#include "graph/ops/fused.h"
#include "graph/rewriter.h"

namespace sluice::compiler {
namespace {

using graph::Node;
using graph::ValueId;
using graph::ValueIds;

constexpr int kAlone = -1;
constexpr size_t kMostSteps = 32;
constexpr size_t kMostNumbers = 4;  // of a sum: operands that are one element
constexpr int kNear = 16;           // nodes between two for which what is kept meanwhile does not matter

// A chain ends in its root, the one node whose value is read elsewhere.
class Chains {
 public:
  Chains(const graph::Graph& graph, PassContext& context) : graph_(graph), context_(context) {
    const int num_nodes = static_cast<int>(graph.nodes().size());
    root_.assign(num_nodes, kAlone);
    std::vector<bool> step;
    for (const Node& node : graph.nodes()) step.push_back(can_be_step(node));
    is_summed_.assign(num_nodes, false);
    if (std::count(step.begin(), step.end(), true) == 0) return;
    readers_.resize(graph.values().size());
    for (int i = 0; i < num_nodes; ++i)
      for (ValueId input : graph.nodes()[i].inputs)
        if (input != graph::kNoValue) readers_[input].push_back(i);
    for (const graph::Output& output : graph.outputs()) readers_[output.value].push_back(kAlone);
    for (const graph::Variable& v : graph.variables())
      if (v.update != graph::kNoValue) readers_[v.update].push_back(kAlone);
    for (int i = num_nodes - 1; i >= 0; --i) {  // readers come first
      if (!step[i]) continue;
      const int root = root_of_all(readers_[graph.nodes()[i].outputs[0]]);
      root_[i] = root != kAlone && joins(i, root) ? root : i;
      members_[root_[i]].insert(members_[root_[i]].begin(), i);
    }
    for (int i = 0; i < num_nodes; ++i) {
      const int root = chain_summed_by(i);
      if (root == kAlone) continue;
      summed_.emplace(i, root);
      is_summed_[root] = true;
    }
  }

  bool any() const {
    return !summed_.empty() ||
           std::any_of(members_.begin(), members_.end(), [](const auto& chain) { return chain.second.size() > 1; });
  }
  // The nodes of the chain that ends in `node`, in order; empty when it is not the end of one.
  std::vector<int> ending_in(int node) const {
    const auto it = members_.find(node);
    return it == members_.end() || it->second.size() < 2 ? std::vector<int>() : it->second;
  }
  // Those of the chain that `node` sums; empty when it sums none.
  std::vector<int> summed_by(int node) const {
    const auto it = summed_.find(node);
    return it == summed_.end() ? std::vector<int>() : members_.at(it->second);
  }
  bool is_inside(int node) const { return root_[node] != kAlone && (root_[node] != node || is_summed_[node]); }
  // Additions in the chain of something else in it.
  int adds_in(const std::vector<int>& members) const {
    return static_cast<int>(std::count_if(members.begin(), members.end(), [&](int member) {
      const Node& node = graph_.nodes()[member];
      return std::string_view(node.op->name) == "add" &&
             std::any_of(node.inputs.begin(), node.inputs.end(),
                         [&](ValueId input) { return made_by(members, input); });
    }));
  }
  // The values that the chain reads, each once, in the order of reading.
  ValueIds inputs_of(const std::vector<int>& members) const {
    ValueIds inputs;
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
    return ops::can_be_step(*node.op) && context_.target.has_kernel("fused", context_.device_of(node).kind) &&
           context_.can_fuse(graph_, node);
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
    if (!context_.options.fuse_add && is_added(n)) return false;
    std::vector<int> members = members_.at(root);
    members.insert(members.begin(), node);
    return n.placement == r.placement && n.quota == r.quota && n.every == r.every && n.role == r.role &&
           keeps_no_more(node, root) && graph_.type(n.outputs[0]).shape == graph_.type(r.outputs[0]).shape &&
           members.size() <= kMostSteps && inputs_of(members).size() <= static_cast<size_t>(kMostFusedInputs);
  }

  bool is_added(const Node& node) const {
    const std::vector<int>& readers = readers_[node.outputs[0]];
    return std::any_of(readers.begin(), readers.end(),
                       [&](int reader) { return std::string_view(graph_.nodes()[reader].op->name) == "add"; });
  }

  // The end of a chain that is read by a sum or a mean of all its elements alone, whose kernel can make them itself.
  int chain_summed_by(int i) const {
    const Node& sum = graph_.nodes()[i];
    const std::string_view op = sum.op->name;
    if (op != "sum" && op != "mean") return kAlone;
    const graph::ValueInfo& x = graph_.values()[sum.inputs[0]];
    const TensorType& total = graph_.type(sum.outputs[0]);
    if (x.kind != graph::ValueKind::kNode || root_[x.index] != x.index || readers_[sum.inputs[0]].size() != 1 ||
        total.shape.rank() != 0 || x.type.shape.rank() == 0 || total.dtype != x.type.dtype || !is_floating(total.dtype))
      return kAlone;
    const Node& root = graph_.nodes()[x.index];
    if (sum.placement != root.placement || sum.quota != root.quota || sum.every != root.every ||
        sum.role != root.role || !context_.target.has_kernel("fused_reduce", context_.device_of(sum).kind))
      return kAlone;
    size_t numbers = 0;
    for (ValueId input : inputs_of(members_.at(x.index))) {
      const Shape& shape = graph_.type(input).shape;
      if (shape.rank() == 0)
        ++numbers;
      else if (shape != x.type.shape)
        return kAlone;
    }
    for (int member : members_.at(x.index))
      if (graph_.nodes()[member].op->random) return kAlone;
    return numbers <= kMostNumbers ? x.index : kAlone;
  }

  // A step reads its operands when the chain runs. If that is much later than the node would have run, the operands
  // must not be more bytes than the node's result.
  bool keeps_no_more(int node, int root) const {
    if (root - node - static_cast<int>(members_.at(root).size()) <= kNear) return true;
    const Node& n = graph_.nodes()[node];
    uint64_t kept = 0;
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      const ValueId input = n.inputs[i];
      const std::vector<int>& readers = readers_[input];
      const bool there_anyway =
          graph_.values()[input].kind != graph::ValueKind::kNode ||
          std::find(n.inputs.begin(), n.inputs.begin() + static_cast<ptrdiff_t>(i), input) !=
              n.inputs.begin() + static_cast<ptrdiff_t>(i) ||
          std::any_of(readers.begin(), readers.end(), [&](int reader) { return reader == kAlone || reader >= root; });
      if (!there_anyway) kept += bytes_of(graph_.type(input));
    }
    return kept <= bytes_of(graph_.type(n.outputs[0]));
  }

  const graph::Graph& graph_;
  PassContext& context_;
  std::vector<std::vector<int>> readers_;  // per value; kAlone: an output, or an update
  std::vector<int> root_;                  // per node: the end of its chain
  std::map<int, std::vector<int>> members_;
  std::map<int, int> summed_;  // by the node that sums: the end of the chain
  std::vector<bool> is_summed_;
};

Node fuse(const graph::Rewriter& rewriter, const std::vector<int>& members, const ValueIds& inputs) {
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
  if (context.options.keep_ops || context.options.prims) return 0;
  const Chains chains(graph, context);
  if (!chains.any()) return 0;
  graph::Rewriter rewriter(graph);
  int fused = 0;
  for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i) {
    if (chains.is_inside(i)) continue;
    const std::vector<int> summed = chains.summed_by(i), members = summed.empty() ? chains.ending_in(i) : summed;
    if (members.empty()) {
      rewriter.take(i);
      continue;
    }
    context.fused_adds += chains.adds_in(members);
    Node node = fuse(rewriter, members, chains.inputs_of(members));
    if (!summed.empty()) {
      node.op = &ops::fused_reduce_op();
      node.attrs.emplace_back(std::string(graph.nodes()[i].op->name));
      static_cast<Provenance&>(node) = merged(node, graph.nodes()[i]);
    }
    const int made = rewriter.target().add_node(std::move(node));
    rewriter.map(graph.nodes()[i].outputs[0], rewriter.target().nodes()[made].outputs[0]);
    ++fused;
  }
  graph = rewriter.finish();
  return fused;
}

}  // namespace sluice::compiler
