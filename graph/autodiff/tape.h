#pragma once
// Reverse-mode autodiff over op calls, eager and traced alike: call() records GradNodes, backward() walks them.
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "graph/op_def.h"
#include "graph/value.h"

namespace sluice {

bool grad_enabled();
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
class GradNode {
 public:
  struct Next {
    std::shared_ptr<GradNode> node;  // null: this input needs no gradient
    int index = 0;                   // which output of `node` the input was
  };
  virtual ~GradNode() = default;
  virtual const char* name() const = 0;
  // Gradients of the inputs from those of the outputs (undefined = zero).
  virtual std::vector<Value> apply(std::span<const Value> grad_outputs) = 0;
  // Drops saved values; a later apply() throws "backward a second time".
  virtual void release() = 0;

  std::vector<Next> next;
  int num_outputs = 1;
};

// Records `op` on `outputs`. Called by call().
void record_call(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs, std::vector<Value>& outputs);
// Records a user function: `backward` gets the outputs' gradients and returns the inputs'.
using BackwardFn = std::function<std::vector<Value>(std::span<const Value> grad_outputs)>;
void record_function(const char* name, std::span<const Value> inputs, std::span<Value> outputs, BackwardFn backward);

struct BackwardOptions {
  bool create_graph = false;
  std::optional<bool> retain_graph;  // default: create_graph
  bool allow_unused = false;         // grad() only
};

// torch.autograd.backward: accumulates into .grad of the leaves.
void backward(std::span<const Value> outputs, std::span<const Value> grad_outputs, const BackwardOptions& options = {});
// torch.autograd.grad.
std::vector<Value> grad(std::span<const Value> outputs, std::span<const Value> inputs,
                        std::span<const Value> grad_outputs, const BackwardOptions& options = {});

}  // namespace sluice
