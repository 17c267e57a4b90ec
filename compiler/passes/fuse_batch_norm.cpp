// Makes one op of batch norm in training, the update of its running statistics, an addition and a relu, and one of its
// backward and relu's, on devices with kernels for them. Arithmetic and rounding stay as they are, and so do the bits.
#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "compiler/pass.h"
#include "graph/ops/fused_batch_norm.h"
#include "graph/rewriter.h"

namespace sluice::compiler {
namespace {

using graph::kNoValue;
using graph::Node;
using graph::ValueId;
using graph::ValueIds;
namespace fwd = ops::fused_batch_norm_input;
namespace bwd = ops::fused_batch_norm_backward_input;

// The update of running statistics: kept * running + taken * (correction * batch).
struct Running {
  ValueId value = kNoValue, next = kNoValue;
  double kept = 0, taken = 0, correction = 1;
  std::vector<int> members = {};
};

struct Chain {
  int norm = -1;               // its place is that of the new node
  const Node* relu = nullptr;  // forward
  ValueId residual = kNoValue, y = kNoValue;
  std::optional<Running> mean = {}, var = {};
  const Node* relu_backward = nullptr;  // backward
  bool keeps_grad = false;
  std::vector<int> members = {};  // besides the norm
};

class Norms {
 public:
  Norms(const graph::Graph& graph, PassContext& context)
      : graph_(graph), context_(context), uses_(count_uses(graph)), readers_(graph.values().size()) {
    for (int i = 0; i < num_nodes(); ++i)
      for (ValueId input : node(i).inputs)
        if (input != kNoValue) readers_[input].push_back(i);
    inside_.assign(num_nodes(), false);
    for (int i = 0; i < num_nodes(); ++i) {
      const std::string_view op = node(i).op->name;
      if (op != "batch_norm_train" && op != "batch_norm_backward") continue;
      const DeviceKind kind = context.device_of(node(i)).kind;
      if (!context.target.has_kernel("fused_batch_norm", kind) ||
          !context.target.has_kernel("fused_batch_norm_backward", kind))
        continue;
      Chain chain = op == "batch_norm_train" ? forward(i) : backward(i);
      if (chain.members.empty()) continue;
      for (int member : chain.members) inside_[member] = true;
      chains_.emplace(i, std::move(chain));
    }
  }

  bool any() const { return !chains_.empty(); }
  const Chain* at(int norm) const {
    const auto it = chains_.find(norm);
    return it == chains_.end() ? nullptr : &it->second;
  }
  bool is_inside(int node) const { return inside_[node]; }

 private:
  int num_nodes() const { return static_cast<int>(graph_.nodes().size()); }
  const Node& node(int i) const { return graph_.nodes()[i]; }

  // The one node that reads `value` and is called `op`, beside `norm`; -1: there is none, or it is an output, too.
  int sole_reader(ValueId value, std::string_view op, const Node& norm) const {
    if (uses_[value] != 1 || readers_[value].size() != 1) return -1;
    const int reader = readers_[value][0];
    return !inside_[reader] && node(reader).op->name == op && together(node(reader), norm) ? reader : -1;
  }
  int maker(ValueId value) const {
    const graph::ValueInfo& info = graph_.values()[value];
    return info.kind == graph::ValueKind::kNode ? info.index : -1;
  }
  static ValueId other(const Node& node, ValueId operand) {
    return node.inputs[0] == operand ? node.inputs[1] : node.inputs[0];
  }
  // A constant of one element, in the dtype of statistics.
  std::optional<double> number(ValueId value, DType dtype) const {
    return graph_.type(value).dtype == dtype ? context_.number(graph_, value) : std::nullopt;
  }

  // kept * running + taken * batch, where `batch` is read by nothing else that comes of the batch's statistics.
  std::optional<Running> running(ValueId batch, const Node& norm) const {
    Running found;
    const int scaled = sole_multiple(batch, norm, found.taken);
    if (scaled < 0) return std::nullopt;
    const int sum = sole_reader(node(scaled).outputs[0], "add", norm);
    if (sum < 0) return std::nullopt;
    const int kept = maker(other(node(sum), node(scaled).outputs[0]));
    if (kept < 0 || kept == scaled || std::string_view(node(kept).op->name) != "mul" ||
        uses_[node(kept).outputs[0]] != 1 || !together(node(kept), norm))
      return std::nullopt;
    for (int i = 0; i < 2; ++i) {
      const std::optional<double> factor = number(node(kept).inputs[1 - i], graph_.type(batch).dtype);
      if (!factor || graph_.type(node(kept).inputs[i]) != graph_.type(batch)) continue;
      found.value = node(kept).inputs[i];
      found.kept = *factor;
    }
    if (found.value == kNoValue || graph_.values()[found.value].kind == graph::ValueKind::kNode) return std::nullopt;
    found.next = node(sum).outputs[0];
    found.members = {scaled, kept, sum};
    return found;
  }

  // The one product of `value` and a number among its readers; the gradient reads statistics, too.
  int sole_multiple(ValueId value, const Node& norm, double& factor) const {
    int found = -1;
    for (int reader : readers_[value]) {
      const Node& n = node(reader);
      if (std::string_view(n.op->name) != "mul" || n.role != norm.role || !together(n, norm) || inside_[reader])
        continue;
      const std::optional<double> by = number(other(n, value), graph_.type(value).dtype);
      if (!by) continue;
      if (found >= 0) return -1;
      found = reader;
      factor = *by;
    }
    return found;
  }

  void take_running(Chain& chain) const {
    const Node& norm = node(chain.norm);
    std::optional<Running> mean = running(norm.outputs[1], norm);
    double correction = 1;
    const int corrected = sole_multiple(norm.outputs[2], norm, correction);
    if (!mean || corrected < 0 || uses_[node(corrected).outputs[0]] != 1) return;
    std::optional<Running> var = running(node(corrected).outputs[0], norm);
    if (!var || var->kept != mean->kept || var->taken != mean->taken) return;
    var->correction = correction;
    chain.members.push_back(corrected);
    for (const Running* r : {&*mean, &*var})
      chain.members.insert(chain.members.end(), r->members.begin(), r->members.end());
    chain.mean = std::move(mean);
    chain.var = std::move(var);
  }

  Chain forward(int i) const {
    const Node& norm = node(i);
    Chain chain{.norm = i, .y = norm.outputs[0]};
    const int sum = context_.options.fuse_add ? sole_reader(chain.y, "add", norm) : -1;
    if (sum >= 0) {
      const ValueId added = other(node(sum), chain.y);
      const int made = maker(added);  // there already; of two norms that are added, the later one adds
      if (graph_.type(added) == graph_.type(chain.y) && made < i) {
        chain.residual = added;
        chain.y = node(sum).outputs[0];
        chain.members.push_back(sum);
      }
    }
    if (const int relu = sole_reader(chain.y, "relu", norm); relu >= 0) {
      chain.relu = &node(relu);
      chain.y = node(relu).outputs[0];
      chain.members.push_back(relu);
    }
    take_running(chain);
    return chain;
  }

  // Others that read relu's gradient come later, and read what the new node keeps of it.
  Chain backward(int i) const {
    const Node& norm = node(i);
    Chain chain{.norm = i};
    const int relu = maker(norm.inputs[0]);
    if (relu < 0 || inside_[relu] || std::string_view(node(relu).op->name) != "relu_backward" ||
        !together(node(relu), norm))
      return chain;
    const std::vector<int>& readers = readers_[norm.inputs[0]];
    if (graph_.type(node(relu).inputs[1]) != graph_.type(norm.inputs[1]) ||
        std::any_of(readers.begin(), readers.end(), [&](int reader) { return reader < i; }))
      return chain;
    chain.relu_backward = &node(relu);
    chain.keeps_grad = uses_[norm.inputs[0]] > 1;
    chain.members = {relu};
    return chain;
  }

  const graph::Graph& graph_;
  const PassContext& context_;
  const std::vector<int> uses_;
  std::vector<std::vector<int>> readers_;
  std::vector<bool> inside_;
  std::map<int, Chain> chains_;
};

void rewrite(graph::Rewriter& rewriter, const Chain& chain) {
  const graph::Graph& source = rewriter.source();
  const Node& norm = source.nodes()[chain.norm];
  Node made = norm;
  const bool backward = chain.relu_backward != nullptr;
  made.op = backward ? &ops::fused_batch_norm_backward_op() : &ops::fused_batch_norm_op();
  made.inputs.assign(backward ? size_t{bwd::kCount} : size_t{fwd::kCount}, kNoValue);
  made.outputs.clear();
  const auto input = [&](size_t i) { return i < norm.inputs.size() ? rewriter[norm.inputs[i]] : kNoValue; };
  if (backward) {
    made.inputs = {rewriter[chain.relu_backward->inputs[0]], input(1), input(2), input(3),
                   rewriter[chain.relu_backward->inputs[1]], input(4)};
    made.attrs = {norm.attrs[0], chain.keeps_grad};
  } else {
    made.inputs = {input(0),
                   input(1),
                   input(2),
                   rewriter[chain.residual],
                   chain.mean ? rewriter[chain.mean->value] : kNoValue,
                   chain.var ? rewriter[chain.var->value] : kNoValue};
    const Running r = chain.var.value_or(Running{.kept = 1});
    made.attrs = {norm.attrs[0], std::string(chain.relu ? "relu" : "none"), r.kept, r.taken, r.correction};
  }
  std::vector<const Provenance*> origins;
  for (int member : chain.members) origins.push_back(&source.nodes()[member]);
  static_cast<Provenance&>(made) = merged(made, origins);
  const int index = rewriter.target().add_node(std::move(made));
  const ValueIds outputs = rewriter.target().nodes()[index].outputs;
  for (size_t o = 0; o < norm.outputs.size(); ++o) rewriter.map(norm.outputs[o], outputs[o]);
  if (backward && chain.keeps_grad) rewriter.map(chain.relu_backward->outputs[0], outputs[3]);
  if (!backward) rewriter.map(chain.y, outputs[0]);
  if (chain.mean) rewriter.map(chain.mean->next, outputs[3]);
  if (chain.var) rewriter.map(chain.var->next, outputs[4]);
}

}  // namespace

int fuse_batch_norm(graph::Graph& graph, PassContext& context) {
  const Norms norms(graph, context);
  if (!norms.any()) return 0;
  graph::Rewriter rewriter(graph);
  int fused = 0;
  for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i) {
    if (norms.is_inside(i)) continue;
    const Chain* const chain = norms.at(i);
    if (chain == nullptr) {
      rewriter.take(i);
      continue;
    }
    context.fused_adds += chain->residual != kNoValue;
    rewrite(rewriter, *chain);
    ++fused;
  }
  graph = rewriter.finish();
  return fused;
}

}  // namespace sluice::compiler
