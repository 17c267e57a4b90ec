#include "tensor/kept_autograd.h"

#include <utility>

#include "graph/tape.h"
#include "tensor/tensor.h"

namespace sluice {

void KeptAutograd::keep(const Value& value) {
  const AutogradMeta* meta = value.impl()->autograd.get();
  versions_.borrow(static_cast<TensorImpl&>(*value.impl()).version_counter());
  Kept kept{value.ptr(), nullptr, nullptr, 0, false};
  if (meta) {
    kept.grad = meta->grad;
    kept.grad_fn = meta->grad_fn;
    kept.output_index = meta->output_index;
    kept.requires_grad = meta->requires_grad;
    value.impl()->autograd->grad.reset();
  }
  kept_.push_back(std::move(kept));
}

void KeptAutograd::restore() {
  for (Kept& kept : kept_) {
    if (!kept.impl->autograd) continue;
    AutogradMeta& meta = *kept.impl->autograd;
    meta.grad = std::move(kept.grad);
    meta.grad_fn = std::move(kept.grad_fn);
    meta.output_index = kept.output_index;
    meta.requires_grad = kept.requires_grad;
  }
  kept_.clear();
  versions_.give_back();
}

}  // namespace sluice
