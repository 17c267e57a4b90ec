#pragma once
// A handle on a tensor that gradient rules and composites compute with: eager (has data) or traced (a graph value).
#include <functional>
#include <memory>
#include <vector>

#include "base/device.h"
#include "base/tensor_spec.h"

namespace sluice {

class GradNode;
class Value;

// The facts about a tensor that only autodiff needs. Present only on tensors that require gradients.
struct AutogradMeta {
  bool requires_grad = false;             // set by the user on a leaf
  std::shared_ptr<GradNode> grad_fn;      // null on a leaf
  int output_index = 0;                   // of grad_fn
  std::shared_ptr<class ValueImpl> grad;  // accumulated on leaves (and on others after retain_grad)
  std::shared_ptr<GradNode> accumulator;  // of a leaf, made on first use
  bool retain_grad = false;
};

// Subclassed in tensor/. Thread safety: as a torch tensor, no concurrent mutation.
class ValueImpl {
 public:
  virtual ~ValueImpl() = default;
  const TensorType& type() const { return type_; }
  const DeviceId& device() const { return device_; }
  bool traced() const { return traced_; }
  // Counts in-place writes to the memory behind it, views included.
  virtual uint64_t version() const = 0;
  // Called by call() on every input first. Throws when the value must not be used (saved for a backward and written
  // since); a view whose base was written in place takes its new history here.
  virtual void refresh_history() {}
  // No other tensor sees its memory, which is dense: a gradient that may be kept without a copy.
  virtual bool unshared() const { return true; }

  std::unique_ptr<AutogradMeta> autograd;

 protected:
  ValueImpl(TensorType type, DeviceId device, bool traced) : type_(type), device_(device), traced_(traced) {}
  TensorType type_;
  DeviceId device_;
  bool traced_;
};

// Cheap to copy; may be undefined (an absent optional input, a gradient that is zero).
class Value {
 public:
  Value() = default;
  explicit Value(std::shared_ptr<ValueImpl> impl) : impl_(std::move(impl)) {}
  bool defined() const { return impl_ != nullptr; }
  explicit operator bool() const { return defined(); }
  const TensorType& type() const { return impl_->type(); }
  const Shape& shape() const { return impl_->type().shape; }
  DType dtype() const { return impl_->type().dtype; }
  const DeviceId& device() const { return impl_->device(); }
  int rank() const { return shape().rank(); }
  ValueImpl* impl() const { return impl_.get(); }
  const std::shared_ptr<ValueImpl>& ptr() const { return impl_; }
  bool requires_grad() const {
    return impl_ && impl_->autograd && (impl_->autograd->requires_grad || impl_->autograd->grad_fn);
  }

 private:
  std::shared_ptr<ValueImpl> impl_;
};

}  // namespace sluice
