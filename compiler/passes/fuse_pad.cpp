// Makes zeros around the input of a convolution a part of its padding, so that no padded copy is written and read:
// where the convolution, or its gradient by the weight, reads what `pad` makes, and where what `slice` cuts off again
// is the border of a convolution's gradient by its input. Zeros contribute nothing either way, so results are the same
// where weights are finite: an infinite weight times a written zero is a NaN, and padding is not multiplied.
#include <algorithm>
#include <optional>
#include <string_view>

#include "compiler/pass.h"
#include "graph/rewriter.h"

namespace sluice::compiler {
namespace {

using graph::kNoValue;
using graph::Node;
using graph::ValueId;

const Ints& ints(const Node& node, const char* param) { return attr<Ints>(node.attrs, node.op->find_param(param)); }

// The padding around each spatial axis, the same on either side. Nullopt: the node does something else, too.
std::optional<Ints> border_of_pad(const Node& node) {
  const Ints &low = ints(node, "low"), &high = ints(node, "high"), &interior = ints(node, "interior");
  const bool zeros = attr<double>(node.attrs, node.op->find_param("value")) == 0;
  const bool spread = std::any_of(interior.begin(), interior.end(), [](int64_t n) { return n != 0; });
  if (!zeros || spread || low != high || low.size() < 3 || low[0] != 0 || low[1] != 0) return std::nullopt;
  return Ints(low.begin() + 2, low.end());
}

// The elements that are cut off each spatial axis, the same on either side.
std::optional<Ints> border_of_slice(const Node& node, const Shape& whole) {
  const Ints &starts = ints(node, "starts"), &stops = ints(node, "stops"), &steps = ints(node, "steps");
  if (starts.size() < 3 || starts[0] != 0 || starts[1] != 0 || stops[0] != whole[0] || stops[1] != whole[1])
    return std::nullopt;
  for (size_t i = 0; i < starts.size(); ++i)
    if (steps[i] != 1 || starts[i] + stops[i] != whole[i]) return std::nullopt;
  return Ints(starts.begin() + 2, starts.end());
}

class Padding {
 public:
  explicit Padding(const graph::Graph& graph) : graph_(graph), readers_(graph.values().size()), plan_(num_nodes()) {
    const std::vector<int> uses = count_uses(graph);
    for (int i = 0; i < num_nodes(); ++i)
      for (ValueId input : node(i).inputs)
        if (input != kNoValue) readers_[input].push_back(i);
    for (int i = 0; i < num_nodes(); ++i) {
      if (name_of(i) == "pad") consider_pad(i, uses);
      if (name_of(i) == "slice") consider_slice(i, uses);
    }
  }

  // The fate of a node: it is left out, or made anew with more padding and another operand or shape.
  struct Change {
    bool left_out = false;
    Ints more = {};  // padding, by spatial axis
    int with = -1;   // the pad or slice that it takes in
  };
  const std::optional<Change>& change(int node) const { return plan_[node]; }
  int found() const { return found_; }

 private:
  int num_nodes() const { return static_cast<int>(graph_.nodes().size()); }
  const Node& node(int i) const { return graph_.nodes()[i]; }
  std::string_view name_of(int i) const { return node(i).op->name; }

  // Kernels are made for padding that a window does not fit into.
  bool takes(int conv, const Ints& more) const {
    const Node& n = node(conv);
    const Ints &padding = ints(n, "padding"), &dilation = ints(n, "dilation");
    const Shape weight =
        name_of(conv) == "conv_weight_grad" ? graph_.type(n.outputs[0]).shape : graph_.type(n.inputs[1]).shape;
    for (size_t d = 0; d < more.size(); ++d)
      if (padding[d] + more[d] > dilation[d] * (weight[2 + static_cast<int>(d)] - 1)) return false;
    return true;
  }

  void consider_pad(int pad, const std::vector<int>& uses) {
    const std::optional<Ints> border = border_of_pad(node(pad));
    const ValueId padded = node(pad).outputs[0];
    const std::vector<int>& readers = readers_[padded];
    if (!border || readers.empty() || static_cast<int>(readers.size()) != uses[padded]) return;
    const auto takes_it = [&](int reader) {
      const Node& n = node(reader);
      const bool conv = name_of(reader) == "conv" && n.inputs[0] == padded && n.inputs[1] != padded;
      const bool weight_grad = name_of(reader) == "conv_weight_grad" && n.inputs[1] == padded && n.inputs[0] != padded;
      return (conv || weight_grad) && together(n, node(pad)) && takes(reader, *border);
    };
    if (!std::all_of(readers.begin(), readers.end(), takes_it)) return;
    plan_[pad] = {.left_out = true};
    for (int reader : readers) plan_[reader] = {.more = *border, .with = pad};
    ++found_;
  }

  void consider_slice(int slice, const std::vector<int>& uses) {
    const graph::ValueInfo& whole = graph_.values()[node(slice).inputs[0]];
    if (whole.kind != graph::ValueKind::kNode || name_of(whole.index) != "conv_input_grad" ||
        uses[node(slice).inputs[0]] != 1 || !together(node(slice), node(whole.index)))
      return;
    const std::optional<Ints> border = border_of_slice(node(slice), whole.type.shape);
    if (!border || !takes(whole.index, *border)) return;
    plan_[whole.index] = {.left_out = true};
    plan_[slice] = {.more = *border, .with = whole.index};
    ++found_;
  }

  const graph::Graph& graph_;
  std::vector<std::vector<int>> readers_;  // nodes, by value
  std::vector<std::optional<Change>> plan_;
  int found_ = 0;
};

// REQUIRES: `change` takes something in.
Node fuse(const graph::Rewriter& rewriter, const Node& node, const Padding::Change& change) {
  const Node& other = rewriter.source().nodes()[change.with];
  const bool cut = std::string_view(node.op->name) == "slice";
  Node made = cut ? other : node;
  static_cast<Provenance&>(made) = merged(node, other);
  made.outputs.clear();
  for (ValueId& input : made.inputs) {
    const bool padded = !cut && input == other.outputs[0];
    input = rewriter[padded ? other.inputs[0] : input];
  }
  Ints& padding = std::get<Ints>(made.attrs[made.op->find_param("padding")]);
  for (size_t d = 0; d < padding.size(); ++d) padding[d] += change.more[d];
  if (cut) {
    const Shape& shape = rewriter.source().type(node.outputs[0]).shape;
    std::get<Ints>(made.attrs[made.op->find_param("input_shape")]) = Ints(shape.begin(), shape.end());
  }
  return made;
}

}  // namespace

int fuse_pad(graph::Graph& graph, PassContext&) {
  const Padding padding(graph);
  if (padding.found() == 0) return 0;
  graph::Rewriter rewriter(graph);
  for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i) {
    const std::optional<Padding::Change>& change = padding.change(i);
    if (!change) {
      rewriter.take(i);
    } else if (!change->left_out) {
      const int made = rewriter.target().add_node(fuse(rewriter, graph.nodes()[i], *change));
      rewriter.map(graph.nodes()[i].outputs[0], rewriter.target().nodes()[made].outputs[0]);
    }
  }
  graph = rewriter.finish();
  return padding.found();
}

}  // namespace sluice::compiler
