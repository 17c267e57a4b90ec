#include "graph/tape.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>

#include "graph/autodiff/graveyard.h"
#include "graph/executor.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/movement.h"

namespace sluice {
namespace {

thread_local bool grad_mode = true;

// Adds up the gradients of a leaf. Held by the leaf, so it sees it weakly.
class Accumulator final : public GradNode {
 public:
  explicit Accumulator(const Value& leaf) : leaf_(leaf.ptr()) {}
  const char* name() const override { return "AccumulateGrad"; }
  void release() override {}

  std::vector<Value> apply(std::span<const Value> grad_outputs, std::span<const bool>) override {
    const std::shared_ptr<ValueImpl> leaf = leaf_.lock();
    if (!leaf || !grad_outputs[0].defined()) return {};
    AutogradMeta& meta = *leaf->autograd;
    if (!meta.grad) {
      meta.grad = current_executor().in_graph_of(Value(leaf), own(grad_outputs[0])).ptr();
    } else if (grad_enabled()) {
      meta.grad = ops::add(Value(meta.grad), grad_outputs[0]).ptr();
    } else {
      const Value sum(meta.grad);  // in place, so that whoever holds .grad sees it
      current_executor().assign(sum, ops::add(sum, grad_outputs[0]));
    }
    const std::vector<Hook> seeing = hooks;  // a hook may remove itself
    for (const Hook& hook : seeing)
      if (hook.time == HookTime::kAccumulated) hook.fn(Value(leaf));
    return {};
  }

 private:
  // A gradient that no other tensor can change under the leaf.
  static Value own(const Value& grad) {
    const bool sole = grad.ptr().use_count() == 1 && grad.impl()->unshared();
    if (grad_enabled()) return sole ? grad : ops::copy(grad);
    return sole ? current_executor().detach(grad) : current_executor().copy(grad);
  }
  std::weak_ptr<ValueImpl> leaf_;
};

// While one destructor drains, others only hand over what they hold: long chains die without recursion.
thread_local std::vector<std::shared_ptr<void>>* graveyard = nullptr;

}  // namespace

void bury(std::vector<std::shared_ptr<void>> items) {
  if (graveyard) {
    std::move(items.begin(), items.end(), std::back_inserter(*graveyard));
    return;
  }
  graveyard = &items;
  while (!items.empty()) {
    std::shared_ptr<void> item = std::move(items.back());
    items.pop_back();
    item.reset();
  }
  graveyard = nullptr;
}

bool grad_enabled() { return grad_mode; }
void set_grad_enabled(bool enabled) { grad_mode = enabled; }
GradMode::GradMode(bool enabled) : previous_(std::exchange(grad_mode, enabled)) {}
GradMode::~GradMode() { grad_mode = previous_; }

static uint64_t new_sequence() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

GradNode::GradNode(std::vector<Next> edges) : sequence(new_sequence()), next(std::move(edges)) {}

GradNode::~GradNode() {
  std::vector<std::shared_ptr<void>> items;
  for (Next& edge : next)
    if (edge.node.use_count() == 1) items.push_back(std::move(edge.node));
  if (!items.empty()) bury(std::move(items));
}

int GradNode::add_hook(int output, std::function<Value(const Value&)> fn, HookTime time) {
  static std::atomic<int> next_id{1};
  const int id = next_id.fetch_add(1, std::memory_order_relaxed);
  hooks.push_back({id, output, time, std::move(fn)});
  return id;
}

void GradNode::remove_hook(int id) {
  std::erase_if(hooks, [&](const Hook& hook) { return hook.id == id; });
}

AutogradMeta& autograd_meta(const Value& value) {
  if (!value.impl()->autograd) value.impl()->autograd = std::make_unique<AutogradMeta>();
  return *value.impl()->autograd;
}

GradNode::Next gradient_edge(const Value& value) {
  if (!value.requires_grad()) return {};
  AutogradMeta& meta = *value.impl()->autograd;
  if (meta.grad_fn) return {meta.grad_fn, meta.output_index};
  if (!meta.accumulator) meta.accumulator = std::make_shared<Accumulator>(value);
  return {meta.accumulator, 0};
}

std::vector<GradNode::Next> gradient_edges(std::span<const Value> values) {
  std::vector<GradNode::Next> edges;
  edges.reserve(values.size());
  for (const Value& value : values) edges.push_back(gradient_edge(value));
  return edges;
}

void set_history(const Value& value, std::shared_ptr<GradNode> node, int index) {
  AutogradMeta& meta = autograd_meta(value);
  meta.grad_fn = std::move(node);
  meta.output_index = index;
  meta.requires_grad = false;
}

}  // namespace sluice
