// Moves what follows a convolution into it, on devices with a kernel "fused_conv": batch norm by given statistics, an
// addition, a relu, in this order, where nothing else reads what is between them. Each is a pass over memory less. The
// CPU's kernel rounds as the ops do one by one, so float32 results stay bitwise the same; 16-bit ones are rounded once.
// A GPU may have another kernel for the whole than for the convolution.
#include <map>
#include <string_view>

#include "compiler/pass.h"
#include "graph/ops/fused_convolution.h"
#include "graph/rewriter.h"

namespace sluice::compiler {
namespace {

using graph::kNoValue;
using graph::Node;
using graph::ValueId;
namespace in = ops::fused_conv_input;

// A convolution and what is moved into it.
struct Chain {
  const Node* conv = nullptr;
  const Node *norm = nullptr, *sum = nullptr, *relu = nullptr;
  ValueId residual = kNoValue;
  std::vector<int> members;  // the last one's result is the chain's
};

class Convolutions {
 public:
  Convolutions(const graph::Graph& graph, PassContext& context)
      : graph_(graph), adds_(context.options.fuse_add), uses_(count_uses(graph)) {
    reader_.assign(graph.values().size(), -1);
    for (int i = 0; i < num_nodes(); ++i)
      for (ValueId input : node(i).inputs)
        if (input != kNoValue) reader_[input] = i;
    claimed_.assign(num_nodes(), false);
    for (int i = num_nodes() - 1; i >= 0; --i) {  // of two that are added, the later one adds
      if (!is_plain(node(i)) || !context.target.has_kernel("fused_conv", context.device_of(node(i)).kind)) continue;
      Chain chain = chain_from(i);
      if (chain.members.size() < 2) continue;
      for (int member : chain.members) claimed_[member] = true;
      chains_.emplace(chain.members.back(), std::move(chain));
    }
  }

  bool any() const { return !chains_.empty(); }
  // The chain that ends in a node; null where none does.
  const Chain* ending_in(int node) const {
    const auto it = chains_.find(node);
    return it == chains_.end() ? nullptr : &it->second;
  }
  bool is_inside(int node) const { return claimed_[node] && !chains_.contains(node); }

 private:
  int num_nodes() const { return static_cast<int>(graph_.nodes().size()); }
  const Node& node(int i) const { return graph_.nodes()[i]; }
  static std::string_view name_of(const Node& node) { return node.op->name; }

  // A convolution with a bias at most, which a fused one may have in float32 beside 16-bit operands.
  static bool is_plain(const Node& node) {
    if (name_of(node) == "conv") return true;
    if (name_of(node) != "fused_conv") return false;
    const auto absent = [&](int i) { return node.inputs[i] == kNoValue; };
    return absent(in::kMean) && absent(in::kResidual) &&
           attr<std::string>(node.attrs, ops::fused_conv_attr::kActivation) == "none";
  }

  Chain chain_from(int conv) const {
    Chain chain{.conv = &node(conv), .members = {conv}};
    while (true) {
      const ValueId y = node(chain.members.back()).outputs[0];
      if (uses_[y] != 1 || reader_[y] < 0) return chain;  // or an output, or an update
      const Node& next = node(reader_[y]);
      if (claimed_[reader_[y]] || !together(next, *chain.conv) || !joins(next, y, chain)) return chain;
      chain.members.push_back(reader_[y]);
    }
  }

  bool joins(const Node& next, ValueId y, Chain& chain) const {
    const std::string_view op = name_of(next);
    if (chain.relu != nullptr) return false;
    if (op == "relu") {
      chain.relu = &next;
    } else if (op == "add" && chain.sum == nullptr && adds_) {
      const ValueId other = next.inputs[0] == y ? next.inputs[1] : next.inputs[0];
      if (graph_.type(other) != graph_.type(y)) return false;
      chain.sum = &next;
      chain.residual = other;
    } else if (op == "batch_norm_infer" && chain.norm == nullptr && chain.sum == nullptr && next.inputs[0] == y) {
      chain.norm = &next;
    } else {
      return false;
    }
    return true;
  }

  const graph::Graph& graph_;
  const bool adds_;
  const std::vector<int> uses_;
  std::vector<int> reader_;  // per value: the last node that reads it
  std::vector<bool> claimed_;
  std::map<int, Chain> chains_;  // by their last members
};

Node fuse(const graph::Rewriter& rewriter, const Chain& chain) {
  Node made = *chain.conv;
  made.op = &ops::fused_conv_op();
  made.outputs.clear();
  made.inputs.assign(in::kCount, kNoValue);
  const auto take = [&](int to, const Node& from, size_t input) {
    if (input < from.inputs.size() && from.inputs[input] != kNoValue) made.inputs[to] = rewriter[from.inputs[input]];
  };
  for (int i = in::kX; i <= in::kBias; ++i) take(i, *chain.conv, static_cast<size_t>(i));
  Attr eps = made.op->params[ops::fused_conv_attr::kEps].default_value;
  if (chain.norm != nullptr) {
    for (int i = in::kMean; i <= in::kShift; ++i) take(i, *chain.norm, static_cast<size_t>(i - in::kMean + 1));
    eps = chain.norm->attrs[0];
  }
  if (chain.residual != kNoValue) made.inputs[in::kResidual] = rewriter[chain.residual];
  made.attrs = {eps, std::string(chain.relu != nullptr ? "relu" : "none")};
  const Attrs& attrs = chain.conv->attrs;
  const bool fused = chain.conv->op == &ops::fused_conv_op();
  made.attrs.insert(made.attrs.end(), attrs.begin() + (fused ? ops::fused_conv_attr::kConv : 0), attrs.end());
  std::vector<const Provenance*> origins;
  for (int member : chain.members) origins.push_back(&rewriter.source().nodes()[member]);
  static_cast<Provenance&>(made) = merged(made, origins);
  return made;
}

}  // namespace

int fuse_convolution(graph::Graph& graph, PassContext& context) {
  const Convolutions convolutions(graph, context);
  if (!convolutions.any()) return 0;
  graph::Rewriter rewriter(graph);
  int fused = 0;
  for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i) {
    if (convolutions.is_inside(i)) continue;
    const Chain* const chain = convolutions.ending_in(i);
    if (chain == nullptr) {
      rewriter.take(i);
      continue;
    }
    const int made = rewriter.target().add_node(fuse(rewriter, *chain));
    rewriter.map(graph.nodes()[i].outputs[0], rewriter.target().nodes()[made].outputs[0]);
    context.fused_adds += chain->sum != nullptr;
    ++fused;
  }
  graph = rewriter.finish();
  return fused;
}

}  // namespace sluice::compiler
