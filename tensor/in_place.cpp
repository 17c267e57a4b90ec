// In-place writes and what they mean for autograd.
#include <algorithm>
#include <optional>
#include <utility>

#include "graph/builder.h"
#include "graph/executor.h"
#include "graph/ops/creation.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/tape.h"
#include "tensor/eager.h"
#include "tensor/eager_memory.h"
#include "tensor/tensor.h"

namespace sluice {
namespace {

Value apply_steps(Value value, const std::vector<ViewStep>& steps) {
  for (const ViewStep& step : steps) value = call1(*step.op, {value}, step.attrs);
  return value;
}

bool leaf_needing_grad(const Value& value) { return value.requires_grad() && !value.impl()->autograd->grad_fn; }

// The content of the target's memory after the write, as a differentiable value of the target's type.
Value fitted(const Value& result, const Value& target) {
  Value value = Tensor(result).to(target.dtype());
  if (value.shape() == target.shape()) return value;
  return ops::expand(value, target.shape());
}

// The gradient of what was written from another device goes back there.
Value sent_back(const Value& grad, const DeviceId& device) {
  return grad.impl()->traced() ? grad : Value(Tensor(grad).to(device));
}

// Records on `output` that it is `base` (whose history `edge` was) with a view of it overwritten by `value`.
void record_scatter(const GradNode::Next& edge, const Value& base, const std::vector<ViewStep>& steps,
                    const Value& value, Value output) {
  const Value before = current_executor().detach(base);
  if (edge.node) set_history(before, edge.node, edge.index);
  const Value inputs[] = {before, value};
  record_function("view_scatter", inputs, {&output, 1},
                  [steps, type = value.type(), from = value.device()](std::span<const Value> grads) {
                    return std::vector<Value>{view_scatter(grads[0], steps, ops::zeros(type.shape, type.dtype)),
                                              sent_back(apply_steps(grads[0], steps), from)};
                  });
}

}  // namespace

Value view_scatter(const Value& base, const std::vector<ViewStep>& steps, const Value& value) {
  Value result;
  {
    const GradMode off(false);
    result = current_executor().copy(base);
    current_executor().assign(apply_steps(result, steps), value);
  }
  record_scatter(gradient_edge(base), base, steps, value, result);
  return result;
}

namespace {

// reads_old: the history of `result` has the target's in it. Otherwise what is overwritten gets a gradient of zeros, as
// in torch.
void write(const Value& target, const Value& result, bool reads_old) {
  SLUICE_CHECK(target.defined() && result.defined(), "in-place: undefined tensor; both sides must be tensors");
  target.impl()->refresh_history();
  TensorImpl& impl = tensor_impl(target);
  const bool view = impl.base() != nullptr;
  const Value base = view ? Value(impl.base()) : target;
  if (!grad_enabled() || (!base.requires_grad() && !target.requires_grad() && !result.requires_grad())) {
    if (result.impl() == target.impl()) return impl.bump_version();  // written already
    const GradMode off(false);
    current_executor().assign(target, result);
    return;
  }
  impl.check_recorded("is being modified inplace");
  SLUICE_CHECK_KIND(
      kRuntime, !leaf_needing_grad(base) && !leaf_needing_grad(target),
      "in-place: a {}leaf Variable that requires grad is being used in an in-place operation: {}; write to it "
      "under no_grad()",
      view ? "view of a " : "", target.type().str());
  const Value value = fitted(result, target);
  if (!view) {
    const GradNode::Next edge = gradient_edge(target);
    std::vector<Value> inputs = {value};
    if (!reads_old && edge.node) {
      inputs.push_back(current_executor().detach(target));
      set_history(inputs.back(), edge.node, edge.index);
    }
    {
      const GradMode off(false);
      current_executor().assign(target, value);
    }
    if (target.impl()->autograd) target.impl()->autograd->grad_fn.reset();
    Value output = target;
    record_function("copy_", inputs, {&output, 1}, [both = inputs.size() == 2, from = value.device()](auto grads) {
      std::vector<Value> result = {sent_back(grads[0], from)};
      if (both) result.push_back(ops::zeros(grads[0].shape(), grads[0].dtype()));
      return result;
    });
    impl.history_changed();
    return;
  }
  // The base gets a history in which the view's region came from `value`.
  const GradNode::Next edge = gradient_edge(base);
  {
    const GradMode off(false);
    current_executor().assign(target, value);
  }
  record_scatter(edge, base, impl.view_steps(), value, base);
  tensor_impl(base).history_changed();
  impl.refresh_history();
}

// Whether calls of the current executor may write into its memory themselves.
bool written_by_calls(const Value& target) {
  const TensorImpl& impl = tensor_impl(target);
  return dynamic_cast<graph::GraphBuilder*>(&current_executor()) == nullptr && !impl.traced() &&
         !static_cast<const EagerImpl&>(impl).global && target.device() == DeviceId();
}

// Compares their addresses: storages of one NumPy array are several.
bool may_share(const Value& a, const Value& b) {
  if (b.impl()->traced() || b.device() != a.device()) return false;
  const Storage &x = *static_cast<const EagerImpl&>(*a.impl()).storage(),
                &y = *static_cast<const EagerImpl&>(*b.impl()).storage();
  const auto begin = [](const Storage& s) { return reinterpret_cast<uintptr_t>(s.data()); };
  return begin(x) < begin(y) + y.bytes() && begin(y) < begin(x) + x.bytes();
}

}  // namespace

void compute_for(const Value& target, std::span<const Value> arguments, const std::function<void()>& compute) {
  std::optional<OverwriteScope> overwrite;
  const bool apart = written_by_calls(target) && std::none_of(arguments.begin(), arguments.end(), [&](const Value& v) {
                       return v.defined() && may_share(target, v);
                     });
  const bool aligned =
      apart && reinterpret_cast<uintptr_t>(eager_impl(target).data()) % dtype_size(target.dtype()) == 0;
  if (aligned && is_contiguous(target.shape(), eager_impl(target).spec().strides)) overwrite.emplace(target);
  compute();
}

void write_in_place(const Value& target, const Value& result) { write(target, result, false); }

void update_in_place(const Value& target, const std::function<Value(const Value& old)>& compute,
                     const InPlaceOptions& options) {
  SLUICE_CHECK(target.defined(), "in-place: undefined tensor");
  target.impl()->refresh_history();
  Value old = target;
  std::optional<OverwriteScope> overwrite;
  const TensorImpl& impl = tensor_impl(target);
  const bool history = target.requires_grad() || (impl.base() != nullptr && Value(impl.base()).requires_grad());
  if (!grad_enabled() || !(options.recorded || history)) {
    if (options.at_once && written_by_calls(target) && target.dtype() != DType::kBool) {
      old = current_executor().detach(target);
      overwrite.emplace(old, target);
    }
  } else {
    // Gradients may need the old content, which is about to be overwritten.
    const GradNode::Next edge = gradient_edge(target);
    old = current_executor().copy(target);
    if (edge.node) set_history(old, edge.node, edge.index);
  }
  const Value result = compute(old);
  overwrite.reset();
  SLUICE_CHECK(result.shape() == target.shape(),
               "in-place: output with shape {} doesn't match the broadcast shape {}; an in-place operation cannot grow "
               "its target",
               target.shape().str(), result.shape().str());
  write(target, result, true);
}

}  // namespace sluice
