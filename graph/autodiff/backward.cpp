// Walks the tape from outputs to leaves.
//
// Nodes run in descending creation sequence, which is a topological order (GradNode, invariant 2) and makes the order
// in which gradients are added up the same in every run. Leaves accumulate at once when the last node that uses them
// has run, so that their hooks overlap with the rest. No recursion: graphs may be very deep.
#include <algorithm>
#include <exception>
#include <memory>
#include <queue>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "graph/autodiff/anomaly.h"
#include "graph/autodiff/grad_factors.h"
#include "graph/autodiff/grad_sum.h"
#include "graph/builder.h"
#include "graph/executor.h"
#include "graph/ops/creation.h"
#include "graph/ops/matmul.h"
#include "graph/ops/movement.h"
#include "graph/origin.h"
#include "graph/tape.h"

namespace sluice {
namespace {

// The device for values that are made for these gradients; a graph places its own.
DeviceId device_of(std::span<const Value> grads) {
  for (const Value& grad : grads)
    if (grad.defined() && !grad.impl()->traced()) return grad.device();
  return {};
}

class Walk {
 public:
  Walk(bool create_graph, bool retain_graph) : mode_(create_graph), retain_graph_(retain_graph) {}

  void seed(const GradNode::Next& edge, const Value& grad) { add(edge, grad); }

  // Wants the gradient that arrives at `edge`; nodes that lead to no wanted edge do not run.
  void want(const GradNode::Next& edge) {
    wanted_[edge.node.get()].push_back({edge.index, {}});
    oldest_ = std::min(oldest_, edge.node->sequence);
  }

  // REQUIRES: everything wanted and seeded.
  void run() {
    wanted_.empty() ? count_uses() : find_paths();
    while (!queue_.empty()) {
      const std::shared_ptr<GradNode> node = queue_.top().node;
      queue_.pop();
      finish(*node);
    }
  }

  // The gradient captured for an edge; undefined when none arrived.
  Value result(const GradNode::Next& edge) const {
    for (const Capture& capture : wanted_.at(edge.node.get()))
      if (capture.output == edge.index) return capture.grad;
    return {};
  }

 private:
  struct Entry {
    uint64_t sequence;
    std::shared_ptr<GradNode> node;
    bool operator<(const Entry& other) const { return sequence < other.sequence; }
  };
  struct Capture {
    int output;
    Value grad;
  };

  // Factors of gradients of one leaf (OpDef::grad_factors), one below the other.
  struct Rows {
    std::shared_ptr<GradNode> leaf;
    std::shared_ptr<const Provenance> origin;  // of the first
    std::vector<Value> a, b;
    int64_t count = 0;
  };

  // Runs the node, whose incoming gradients are complete. Nothing when a leaf has run already.
  void finish(GradNode& node) {
    multiply_factors(node);
    auto entry = pending_.extract(&node);
    if (entry.empty()) return;
    std::vector<Value> grads;
    for (GradSum& sum : entry.mapped()) grads.push_back(sum.take());
    run_hooks(node, grads);
    capture(node, grads);
    if (wanted_.empty() || leads_[&node]) run_node(node, std::move(grads));
  }

  void add(const GradNode::Next& edge, Value grad) { sum_at(edge).add(std::move(grad)); }

  GradSum& sum_at(const GradNode::Next& edge) {
    std::vector<GradSum>& sums = pending_[edge.node.get()];
    if (sums.empty()) {
      sums.resize(edge.node->num_outputs);
      queue_.push({edge.node->sequence, edge.node});
    }
    return sums[edge.index];
  }

  static void run_hooks(GradNode& node, std::vector<Value>& grads) {
    if (node.hooks.empty()) return;
    const std::vector<GradNode::Hook> hooks = node.hooks;  // a hook may remove itself
    for (const auto time : {GradNode::HookTime::kArrived, GradNode::HookTime::kLast}) {
      for (const GradNode::Hook& hook : hooks) {
        Value& grad = grads[hook.output];
        if (hook.time != time || !grad.defined()) continue;
        const Value replaced = hook.fn(grad);
        if (!replaced.defined()) continue;
        SLUICE_CHECK_KIND(kRuntime, replaced.type() == grad.type(),
                          "hook: returned a gradient of another type: {}; must be {}", replaced.type().str(),
                          grad.type().str());
        grad = replaced;
      }
    }
  }

  void capture(const GradNode& node, const std::vector<Value>& grads) {
    const auto found = wanted_.find(&node);
    if (found == wanted_.end()) return;
    for (Capture& capture : found->second) capture.grad = grads[capture.output];
  }

  void run_node(GradNode& node, std::vector<Value> grads) {
    const size_t n = node.next.size();
    std::unique_ptr<bool[]> needs(new bool[n + 1]);
    bool any = n == 0;
    for (size_t i = 0; i < n; ++i) any |= needs[i] = node.next[i].node && is_wanted(node.next[i].node.get());
    if (!any) return;
    const OriginScope belongs(Role::kBackward, node.origin.get());
    const CreationScope there(device_of(grads));
    any = n == 0;
    for (size_t i = 0; i < n; ++i) {
      if (needs[i] && (keep_part(node, grads, i) || keep_factors(node, grads, i))) needs[i] = false;
      any |= needs[i];
    }
    std::vector<Value> inputs;
    if (any) inputs = applied(node, grads, {needs.get(), n});
    if (!retain_graph_) node.release();
    grads.clear();
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].defined() && needs[i]) add(node.next[i], std::move(inputs[i]));
    for (const GradNode::Next& edge : node.next) {
      const auto found = uses_.find(edge.node.get());
      if (found != uses_.end() && --found->second == 0) finish(*edge.node);
    }
  }

  // Keeps a gradient that is zero outside of a part as that part.
  bool keep_part(GradNode& node, std::span<const Value> grads, size_t i) {
    if (AnomalyScope::innermost()) return false;
    std::optional<GradPart> part = part_of(node, grads);
    if (!part) return false;
    sum_at(node.next[i]).add(std::move(*part), node.origin);
    return true;
  }

  // Keeps the gradient of a leaf that several calls share as its factors, if these are smaller than it is.
  bool keep_factors(GradNode& node, std::span<const Value> grads, size_t i) {
    const GradNode::Next& edge = node.next[i];
    const auto uses = uses_.find(edge.node.get());
    const bool shared = (uses != uses_.end() && uses->second > 1) || factors_.count(edge.node.get());
    if (!shared || AnomalyScope::innermost() || !regroups_) return false;
    const std::optional<GradFactors> factors = factors_of(node, grads, i);
    if (!factors) return false;
    const int64_t rows = factors->a.shape()[0], m = factors->a.shape()[1], n = factors->b.shape()[1];
    if (rows * (m + n) >= m * n) return false;
    const auto [entry, fresh] = factors_.try_emplace(edge.node.get());
    Rows& kept = entry->second;
    if (fresh) {
      kept.leaf = edge.node;
      kept.origin = node.origin;
      queue_.push({edge.node->sequence, edge.node});
    }
    kept.a.push_back(factors->a);
    kept.b.push_back(factors->b);
    kept.count += rows;
    if (kept.count * (m + n) >= 2 * m * n) multiply(kept);
    return true;
  }

  void multiply_factors(GradNode& leaf) {
    auto entry = factors_.extract(&leaf);
    if (!entry.empty()) multiply(entry.mapped());
  }

  void multiply(Rows& rows) {
    if (rows.a.empty()) return;
    const OriginScope belongs(Role::kBackward, rows.origin.get());
    const auto joined = [](const std::vector<Value>& parts) {
      return parts.size() == 1 ? parts[0] : ops::concat(parts);
    };
    add({rows.leaf, 0}, ops::matmul(joined(rows.a), joined(rows.b), true, false));
    rows.a.clear(), rows.b.clear();
    rows.count = 0;
  }

  static std::vector<Value> applied(GradNode& node, std::span<const Value> grads, std::span<const bool> needs) {
    const AnomalyScope* anomaly = AnomalyScope::innermost();
    if (!anomaly) return node.apply(grads, needs);
    const std::string line = node.origin ? node.origin->source.str() : "";
    const std::string forward = line.empty()
                                    ? "no line is known of its forward call; call it inside detect_anomaly, too"
                                    : fmt::format("its forward call is at {}", line);
    std::vector<Value> inputs;
    try {
      inputs = node.apply(grads, needs);
    } catch (const Error& error) {
      throw Error(error.kind(),
                  fmt::format("{}\n  detect_anomaly: in the gradient of {}: {}", error.what(), node.name(), forward));
    }
    for (size_t i = 0; i < inputs.size(); ++i)
      SLUICE_CHECK_KIND(kRuntime, !inputs[i].defined() || !needs[i] || !anomaly->has_nan(inputs[i]),
                        "detect_anomaly: Function '{}' returned nan values in its {}th output; {}", node.name(), i,
                        forward);
    return inputs;
  }

  // uses_: how many edges lead to each leaf (of what is wanted). A leaf with one that never carries anything runs at
  // the end.
  void count_uses() {
    std::vector<const GradNode*> stack;
    std::unordered_set<const GradNode*> seen;
    for (const auto& [node, sums] : pending_) stack.push_back(node);
    while (!stack.empty()) {
      const GradNode* node = stack.back();
      stack.pop_back();
      if (!seen.insert(node).second) continue;
      for (const auto& edge : node->next) {
        if (!edge.node) continue;
        if (edge.node->next.empty())
          ++uses_[edge.node.get()];
        else
          stack.push_back(edge.node.get());
      }
    }
  }

  bool is_wanted(const GradNode* node) const {
    if (wanted_.empty()) return true;
    const auto found = leads_.find(node);
    return wanted_.count(node) || (found != leads_.end() && found->second);
  }

  // leads_: does a path from this node arrive at a wanted edge.
  void find_paths() {
    std::vector<const GradNode*> order, stack;
    for (const auto& [node, sums] : pending_) stack.push_back(node);
    while (!stack.empty()) {
      const GradNode* node = stack.back();
      stack.pop_back();
      if (node->sequence < oldest_ || !leads_.try_emplace(node, false).second) continue;
      order.push_back(node);
      for (const auto& edge : node->next)
        if (edge.node) stack.push_back(edge.node.get());
    }
    std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->sequence < b->sequence; });
    for (const GradNode* node : order) {
      for (const auto& edge : node->next) {
        if (!edge.node || !is_wanted(edge.node.get())) continue;
        leads_[node] = true;
        if (edge.node->next.empty()) ++uses_[edge.node.get()];
      }
    }
  }

  // Not in graphs, whose bits do not depend on how many devices their values lie over: they may be split by rows.
  static bool can_regroup() { return dynamic_cast<graph::GraphBuilder*>(&current_executor()) == nullptr; }

  GradMode mode_;
  const bool regroups_ = can_regroup();
  OriginScope role_{Role::kBackward};  // of what hooks call
  bool retain_graph_;
  uint64_t oldest_ = UINT64_MAX;
  std::priority_queue<Entry> queue_;
  std::unordered_map<const GradNode*, std::vector<GradSum>> pending_;
  std::unordered_map<const GradNode*, std::vector<Capture>> wanted_;
  std::unordered_map<const GradNode*, bool> leads_;
  std::unordered_map<const GradNode*, int> uses_;
  std::unordered_map<const GradNode*, Rows> factors_;
};

thread_local std::vector<std::function<void(bool)>>* callbacks = nullptr;  // of the outermost backward() under way

void seed_outputs(Walk& walk, std::span<const Value> outputs, std::span<const Value> grad_outputs, const char* where) {
  SLUICE_CHECK(grad_outputs.empty() || grad_outputs.size() == outputs.size(),
               "{}: got {} outputs and {} gradients; pass one gradient per output, or none", where, outputs.size(),
               grad_outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Value& output = outputs[i];
    if (output.defined()) output.impl()->refresh_history();
    SLUICE_CHECK_KIND(kRuntime, output.requires_grad(),
                      "{}: element {} of tensors does not require grad and does not have a grad_fn", where, i);
    Value grad = grad_outputs.empty() ? Value() : grad_outputs[i];
    if (!grad.defined()) {
      SLUICE_CHECK_KIND(
          kRuntime, numel(output.shape()) == 1,
          "{}: grad can be implicitly created only for scalar outputs: output {} is {}; pass its gradient", where, i,
          output.type().str());
      SLUICE_CHECK_KIND(kRuntime, !is_complex(output.dtype()),
                        "{}: grad can be implicitly created only for real scalar outputs but got {}: output {}; pass "
                        "its gradient",
                        where, dtype_name(output.dtype()), i);
      const CreationScope there(device_of({&output, 1}));
      grad = ops::full(output.shape(), 1, output.dtype());
    }
    SLUICE_CHECK_KIND(kRuntime, grad.shape() == output.shape(),
                      "{}: Mismatch in shape: grad_output[{}] is {}; output[{}] is {}, they must be equal", where, i,
                      grad.shape().str(), i, output.shape().str());
    walk.seed(gradient_edge(output), grad);
  }
}

}  // namespace

void backward(std::span<const Value> outputs, std::span<const Value> grad_outputs, const BackwardOptions& options) {
  Walk walk(options.create_graph, options.retain_graph.value_or(options.create_graph));
  seed_outputs(walk, outputs, grad_outputs, "backward");
  if (callbacks) return walk.run();
  std::vector<std::function<void(bool)>> queued;
  callbacks = &queued;
  std::exception_ptr error;
  try {
    walk.run();
  } catch (...) {
    error = std::current_exception();
  }
  callbacks = nullptr;
  for (const auto& done : queued) {
    try {
      done(!error);
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

void queue_callback(std::function<void(bool)> done) {
  SLUICE_CHECK_KIND(kRuntime, callbacks,
                    "queue_callback: no backward() is under way on this thread; call it from a hook");
  callbacks->push_back(std::move(done));
}

std::vector<Value> grad(std::span<const Value> outputs, std::span<const Value> inputs,
                        std::span<const Value> grad_outputs, const BackwardOptions& options) {
  Walk walk(options.create_graph, options.retain_graph.value_or(options.create_graph));
  std::vector<GradNode::Next> edges;
  for (const Value& input : inputs) {
    if (input.defined()) input.impl()->refresh_history();
    SLUICE_CHECK_KIND(kRuntime, input.requires_grad(), "grad: One of the differentiated Tensors does not require grad");
    edges.push_back(gradient_edge(input));
    walk.want(edges.back());
  }
  seed_outputs(walk, outputs, grad_outputs, "grad");
  walk.run();
  std::vector<Value> grads;
  for (const auto& edge : edges) {
    grads.push_back(walk.result(edge));
    SLUICE_CHECK_KIND(kRuntime, grads.back().defined() || options.allow_unused,
                      "grad: One of the differentiated Tensors appears to not have been used in the graph; set "
                      "allow_unused=True if this is the desired behavior");
  }
  return grads;
}

}  // namespace sluice
