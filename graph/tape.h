#pragma once
// Reverse-mode autodiff over op calls, eager and traced alike: call() records GradNodes, backward() walks them.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/provenance.h"
#include "graph/op_def.h"
#include "graph/value.h"

namespace sluice {

bool grad_enabled();
void set_grad_enabled(bool enabled);  // of this thread, until it is set again or the scope ends in which it was set
// Restores the previous mode at the end of the scope (no_grad, enable_grad). Thread-local.
class GradMode {
 public:
  explicit GradMode(bool enabled);
  ~GradMode();
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool previous_;
};

// One recorded call. Subclassed for ops, for leaves (accumulation) and for user functions.
//
// Invariants
//  1. Nodes form no cycle: a node holds its predecessors, its inputs, and aliases of its outputs without history.
//  2. Every node in `next` has a smaller `sequence`, so descending sequence is a topological order.
class GradNode : public std::enable_shared_from_this<GradNode> {
 public:
  struct Next {
    std::shared_ptr<GradNode> node;  // null: this input needs no gradient
    int index = 0;                   // which output of `node` the input was
  };
  // Sees, and may replace, the complete gradient of one output. One of `kAccumulated` gets the leaf instead, once its
  // .grad is complete.
  enum class HookTime { kArrived, kLast, kAccumulated };  // kLast: retain_grad
  struct Hook {
    int id = 0;
    int output = 0;
    HookTime time = HookTime::kArrived;
    std::function<Value(const Value&)> fn;
  };
  explicit GradNode(std::vector<Next> edges = {});
  virtual ~GradNode();
  GradNode(const GradNode&) = delete;
  GradNode& operator=(const GradNode&) = delete;
  virtual const char* name() const = 0;
  // Gradients of the inputs from those of the outputs (undefined = zero). `needs[i]`: is that of input i wanted.
  virtual std::vector<Value> apply(std::span<const Value> grad_outputs, std::span<const bool> needs) = 0;
  // Drops saved values; a later apply() throws "backward a second time".
  virtual void release() = 0;

  int add_hook(int output, std::function<Value(const Value&)> fn, HookTime time = HookTime::kArrived);
  void remove_hook(int id);

  const uint64_t sequence;                             // of creation
  std::shared_ptr<const Provenance> origin = nullptr;  // of the call, where its executor keeps that
  std::vector<Next> next;                              // per input
  int num_outputs = 1;
  std::vector<Hook> hooks;
};

// The value's autograd data, made on first use.
AutogradMeta& autograd_meta(const Value& value);
// The edge that the gradient of `value` takes: to its grad_fn, to the accumulator of a leaf, or nowhere.
GradNode::Next gradient_edge(const Value& value);
std::vector<GradNode::Next> gradient_edges(std::span<const Value> values);
// Makes `value` output `index` of `node`.
void set_history(const Value& value, std::shared_ptr<GradNode> node, int index);

// Records `op` on `outputs`. Called by call().
void record_call(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs, std::vector<Value>& outputs);
// Records a user function: `backward` gets the outputs' gradients and returns the inputs'. Does nothing when gradients
// are disabled or no input requires one.
using BackwardFn = std::function<std::vector<Value>(std::span<const Value> grad_outputs)>;
void record_function(const char* name, std::span<const Value> inputs, std::span<Value> outputs, BackwardFn backward);

// A value kept for a backward pass: remembers the version it had, and holds no history (which could lead back to the
// node that keeps it). Kept as what the thread's SavedHooksScope makes of it, if there is one.
class SavedValue {
 public:
  SavedValue() = default;
  explicit SavedValue(const Value& value);
  // Only its type and device, of an operand that is not read: a stand-in that throws as soon as an op reads it.
  static SavedValue outline(const Value& value, const char* keeper);
  // The value, with `history` (of an input: the keeper's next[i]; of output i: {keeper, i}). When it was written since,
  // a stand-in with its type that throws as soon as an op reads it.
  Value get(const char* keeper, const GradNode::Next& history) const;
  bool defined() const { return value_.defined(); }
  const TensorType& type() const { return value_.type(); }  // REQUIRES: defined()
  Value take() { return std::move(value_); }

 private:
  Value value_;
  uint64_t version_ = 0;
  bool outline_ = false;
  std::shared_ptr<class PackedValue> packed_;  // then value_ is an outline
};

struct BackwardOptions {
  bool create_graph = false;
  std::optional<bool> retain_graph;  // default: create_graph
  bool allow_unused = false;         // grad() only
};

// torch.autograd.backward: accumulates into .grad of the leaves, of each as soon as its gradient is complete.
void backward(std::span<const Value> outputs, std::span<const Value> grad_outputs, const BackwardOptions& options = {});
// Calls `done` at the end of the outermost backward() under way on this thread, telling whether it has succeeded so
// far; what `done` throws is thrown there.
void queue_callback(std::function<void(bool succeeded)> done);
// torch.autograd.grad.
std::vector<Value> grad(std::span<const Value> outputs, std::span<const Value> inputs,
                        std::span<const Value> grad_outputs, const BackwardOptions& options = {});

}  // namespace sluice
