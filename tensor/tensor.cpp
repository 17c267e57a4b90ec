#include "tensor/tensor.h"

#include <cstring>
#include <utility>

#include "graph/calls/call_fix.h"
#include "graph/executor.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/movement.h"
#include "graph/tape.h"
#include "tensor/eager.h"
#include "tensor/eager_memory.h"
#include "tensor/trace_executor.h"

namespace sluice {
namespace {

EagerImpl& in_memory(const Tensor& tensor, const char* what) {
  SLUICE_CHECK_KIND(
      kRuntime, !tensor.traced(),
      "{}: the tensor is part of a graph: {}; its content exists only when the graph runs: return it from "
      "build(), or read it in a host_function",
      what, tensor.type().str());
  auto& impl = static_cast<EagerImpl&>(*tensor.impl());
  impl.check_whole(what);
  return impl;
}

EagerImpl& on_host(const Tensor& tensor, const char* what) {
  EagerImpl& impl = in_memory(tensor, what);
  SLUICE_CHECK_KIND(kUnsupported, impl.on_host(), "{}: the host cannot address memory of {}; use .to(\"cpu\") first",
                    what, impl.device().str());
  return impl;
}

}  // namespace

Tensor Tensor::empty(const TensorType& type) {
  return asked_by("empty", [&] { return Value(current_eager().allocate(type, creation_device())); });
}

Tensor Tensor::full(const TensorType& type, double value) {
  const ExecutorScope now(current_eager());
  const GradMode off(false);
  return ops::full(type.shape, value, type.dtype);
}

Tensor Tensor::from_host(const TensorType& type, const void* data) {
  auto impl = asked_by("tensor", [&] { return current_eager().allocate(type); });
  if (const uint64_t bytes = impl->storage()->bytes()) std::memcpy(impl->data(), data, bytes);
  const Value made(std::move(impl));
  return creation_device().kind == DeviceKind::kCpu ? made : current_eager().copy_to(made, creation_device());
}

Tensor Tensor::borrow(const TensorSpec& spec, void* data, std::function<void()> release) {
  for (int64_t stride : spec.strides)
    SLUICE_CHECK(stride >= 0, "borrow: negative stride: {}; copy the array first", spec.strides.str());
  auto storage = std::make_shared<Storage>(data, spec.extent_bytes(), std::move(release));
  storage->lend();  // for good: whose memory it is may write there
  return Value(std::make_shared<EagerImpl>(std::move(storage), spec, DeviceId{}));
}

const void* Tensor::read(const char* what) const {
  const EagerImpl& impl = on_host(*this, what);
  impl.storage()->before_read();
  return impl.data();
}

void* Tensor::write(const char* what) const {
  EagerImpl& impl = on_host(*this, what);
  impl.storage()->before_write();
  impl.bump_version();
  return impl.data();
}

bool Tensor::wait_for(std::chrono::nanoseconds slice) const {
  return traced() || static_cast<EagerImpl*>(impl())->wait_for(slice);
}
bool Tensor::ready() const { return traced() || static_cast<EagerImpl*>(impl())->ready(); }

void Tensor::copy_to_host(void* data) const {
  const EagerImpl& impl = in_memory(*this, "copy_to_host");
  if (size() == 0) return;
  Value dense = *this;
  if (impl.device().kind != DeviceKind::kCpu) dense = current_eager().copy_to(dense, {});
  if (!Tensor(dense).is_contiguous()) dense = current_eager().copy(dense);
  std::memcpy(data, Tensor(dense).read(), checked_bytes(shape(), dtype_size(dtype())));
}

Attr Tensor::item() const {
  SLUICE_CHECK(size() == 1,
               "item: a Tensor with {} elements cannot be converted to Scalar: {}; it must have one element", size(),
               type().str());
  if (TraceExecutor* trace = current_trace(); trace && trace->touches_graph(*this)) {
    const SourceLocation line = CallFixes::line();
    throw FixableError(
        ErrorKind::kRuntime,
        fmt::format("item: the tensor is part of a graph: {}; its content changes with every run of it", type().str()),
        line.known() ? Fix{{"line", line.str()}, {"rewrite", std::string("where")}} : Fix());
  }
  SLUICE_CHECK_KIND(kUnsupported, !is_complex(dtype()),
                    "item: {} is no number of one part; ask real and imaginary part", dtype_name(dtype()));
  alignas(8) char bytes[8];
  in_memory(*this, "item");
  copy_to_host(bytes);
  const auto as = [&]<class T>(T) {
    T v;
    std::memcpy(&v, bytes, sizeof(T));
    return v;
  };
  switch (dtype()) {
    case DType::kBool: return as(uint8_t{}) != 0;
    case DType::kUInt8: return static_cast<int64_t>(as(uint8_t{}));
    case DType::kInt8: return static_cast<int64_t>(as(int8_t{}));
    case DType::kInt16: return static_cast<int64_t>(as(int16_t{}));
    case DType::kInt32: return static_cast<int64_t>(as(int32_t{}));
    case DType::kInt64: return as(int64_t{});
    case DType::kFloat16: return static_cast<double>(to_float(as(Float16{})));
    case DType::kBFloat16: return static_cast<double>(to_float(as(BFloat16{})));
    case DType::kFloat32: return static_cast<double>(as(float{}));
    case DType::kFloat64: return as(double{});
    case DType::kComplex64:
    case DType::kComplex128: break;
  }
  return {};
}

Tensor Tensor::to(DType dtype) const { return dtype == this->dtype() ? *this : Tensor(ops::cast(*this, dtype)); }

Tensor Tensor::to(const DeviceId& device) const {
  if (current_trace()) {
    graph::Placement placement;
    placement.device = device;
    const PlacementScope scope(placement);
    return ops::copy(*this);
  }
  if (device == this->device()) return *this;
  return current_eager().move_to(*this, device);
}

Tensor Tensor::contiguous() const {
  const Tensor copy = is_contiguous() ? Tensor() : clone();
  strides_decided(*this, copy);
  return copy.defined() ? copy : *this;
}
Tensor Tensor::clone() const { return ops::copy(*this); }
Tensor Tensor::detach() const { return current_executor().detach(*this); }

bool Tensor::is_leaf() const { return !impl()->autograd || !impl()->autograd->grad_fn; }

void Tensor::set_requires_grad(bool on) const {
  SLUICE_CHECK_KIND(kRuntime, !on || is_differentiable(dtype()),
                    "requires_grad: only Tensors of floating point dtype can require gradients: got {}",
                    dtype_name(dtype()));
  if (!on && !impl()->autograd) return;
  SLUICE_CHECK_KIND(
      kRuntime, on || is_leaf(),
      "requires_grad: you can only change requires_grad flags of leaf variables: this one is the result of "
      "{}; use .detach()",
      impl()->autograd->grad_fn->name());
  if (is_leaf()) autograd_meta(*this).requires_grad = on;
}

Tensor Tensor::grad() const { return impl()->autograd ? Tensor(Value(impl()->autograd->grad)) : Tensor(); }

void Tensor::set_grad(const Value& grad) const {
  if (!grad.defined()) {
    if (impl()->autograd) impl()->autograd->grad.reset();
    return;
  }
  SLUICE_CHECK_KIND(kRuntime, grad.type() == type(), "grad: assigned a gradient of another type: {}; must be {}",
                    grad.type().str(), type().str());
  autograd_meta(*this).grad = grad.ptr();
}

void Tensor::retain_grad() const {
  SLUICE_CHECK_KIND(kRuntime, requires_grad(),
                    "retain_grad: can't retain_grad on a Tensor that has requires_grad=False");
  AutogradMeta& meta = *impl()->autograd;
  if (is_leaf() || meta.retain_grad) return;
  meta.retain_grad = true;
  meta.grad_fn->add_hook(
      meta.output_index,
      [weak = std::weak_ptr<ValueImpl>(ptr())](const Value& grad) {
        const auto impl = weak.lock();
        if (!impl) return Value();
        Value kept = current_executor().detach(grad);
        if (impl->autograd->grad) {  // of another pass
          const GradMode off(false);
          kept = ops::add(Value(impl->autograd->grad), kept);
        }
        impl->autograd->grad = kept.ptr();
        return Value();
      },
      GradNode::HookTime::kLast);
}

int Tensor::add_hook(std::function<Value(const Value&)> hook) const {
  SLUICE_CHECK_KIND(kRuntime, requires_grad(),
                    "register_hook: cannot register a hook on a tensor that doesn't require gradient");
  const GradNode::Next edge = gradient_edge(*this);
  return edge.node->add_hook(edge.index, std::move(hook));
}

int Tensor::add_post_accumulate_grad_hook(std::function<void(const Value&)> hook) const {
  SLUICE_CHECK_KIND(kRuntime, requires_grad() && is_leaf(),
                    "register_post_accumulate_grad_hook: the tensor {}; it must be a leaf that requires grad",
                    requires_grad() ? "is the result of an op" : "doesn't require grad");
  return gradient_edge(*this).node->add_hook(
      0,
      [hook = std::move(hook)](const Value& leaf) {
        hook(leaf);
        return Value();
      },
      GradNode::HookTime::kAccumulated);
}

void Tensor::remove_hook(int id) const {
  if (requires_grad()) gradient_edge(*this).node->remove_hook(id);
}

}  // namespace sluice
