#pragma once
// Tensors: what a Value is in eager mode (memory) and while tracing (a graph value), and the helpers on them.
//
// Thread safety: as a torch tensor: concurrent reads are fine, a write needs the tensor for itself.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/tensor_spec.h"
#include "graph/op_def.h"
#include "graph/value.h"
#include "memory/storage.h"

namespace sluice {

class EagerExecutor;

// How a view was made from its base: view ops, applied in order.
struct ViewStep {
  const OpDef* op = nullptr;
  Attrs attrs;
};

// What eager and traced tensors share. `spec()` of a traced tensor is the layout an eager one would have: it decides,
// as in eager mode, which view ops alias and which copy.
class TensorImpl : public ValueImpl {
 public:
  const TensorSpec& spec() const { return spec_; }
  // The tensor this one is a view of (never itself a view), or null.
  const std::shared_ptr<TensorImpl>& base() const { return base_; }
  const std::vector<ViewStep>& view_steps() const { return steps_; }
  uint64_t version() const override { return *version_; }
  void bump_version() { ++*version_; }
  void refresh_history() override;
  // Of a base: how often an in-place write gave it a new history; views made before it must take theirs anew.
  uint64_t history = 0;

 protected:
  TensorImpl(TensorSpec spec, DeviceId device, bool traced);
  void set_base(std::shared_ptr<TensorImpl> parent, ViewStep step);
  TensorSpec spec_;
  std::shared_ptr<uint64_t> version_;
  std::shared_ptr<TensorImpl> base_;
  std::vector<ViewStep> steps_;
  uint64_t base_history_ = 0;
  friend void write_in_place(const Value& target, const Value& result);
};

// Memory: a storage seen through an offset and strides. Views share storage and version.
class EagerImpl final : public TensorImpl {
 public:
  EagerImpl(std::shared_ptr<Storage> storage, TensorSpec spec, int64_t offset = 0);
  // A view of `parent` made by `step`.
  EagerImpl(std::shared_ptr<EagerImpl> parent, ViewStep step, const OpDef::ViewSpec& view);
  // The same memory without history (torch's detach); shares the version counter.
  std::shared_ptr<EagerImpl> alias() const;

  const std::shared_ptr<Storage>& storage() const { return storage_; }
  int64_t offset() const { return offset_; }  // in elements
  char* data() const { return static_cast<char*>(storage_->data()) + offset_ * dtype_size(type_.dtype); }

 private:
  std::shared_ptr<Storage> storage_;
  int64_t offset_ = 0;
};

// A Value with torch's everyday methods. Converts to and from Value freely.
class Tensor : public Value {
 public:
  Tensor() = default;
  Tensor(Value value) : Value(std::move(value)) {}  // NOLINT: the same thing under another name

  // Memory comes from the current executor's engine. Contents of empty() are undefined.
  static Tensor empty(const TensorType& type);
  static Tensor full(const TensorType& type, double value);
  static Tensor zeros(const TensorType& type) { return full(type, 0); }
  static Tensor scalar(double value, DType dtype) { return full({dtype, {}}, value); }
  // Copies contiguous host data.
  static Tensor from_host(const TensorType& type, const void* data);
  // Shares foreign host memory; `release` runs when the last owner goes. Strides in elements.
  static Tensor borrow(const TensorSpec& spec, void* data, std::function<void()> release);

  const TensorSpec& spec() const { return static_cast<TensorImpl*>(impl())->spec(); }
  const Strides& strides() const { return spec().strides; }
  bool is_contiguous() const { return sluice::is_contiguous(spec().shape, spec().strides); }
  bool is_view() const { return static_cast<TensorImpl*>(impl())->base() != nullptr; }
  bool traced() const { return impl()->traced(); }
  int64_t size() const { return numel(shape()); }

  // Host access: waits for graph steps that still use the memory. The pointer is to the first element, laid out by
  // spec(). Throws kRuntime on a traced tensor ("<what>: ..."), kUnsupported on memory the host cannot address.
  // The write form counts as an in-place write.
  const void* read(const char* what = "data") const;
  void* write(const char* what = "data") const;
  // True when read() would not block.
  bool ready() const;
  // The contents as contiguous bytes, from any device.
  void copy_to_host(void* data) const;
  // The only element, as bool, int64 or double. Throws kValue unless size() == 1.
  Attr item() const;

  Tensor to(DType dtype) const;           // itself when it already is
  Tensor to(const DeviceId& device) const;
  Tensor contiguous() const;
  Tensor clone() const;                   // differentiable copy
  Tensor detach() const;                  // the same memory without history

  // Autograd.
  bool is_leaf() const;
  void set_requires_grad(bool on) const;  // kRuntime on a non-leaf (to false), kType on integers
  Tensor grad() const;                    // undefined when there is none
  void set_grad(const Value& grad) const;
  void retain_grad() const;
  // Runs when this tensor's gradient is known; a defined result replaces it. Returns an id for remove_hook().
  int add_hook(std::function<Value(const Value&)> hook) const;
  void remove_hook(int id) const;
};

// The body of every in-place op `target.op_(...)`: computes from the old content, writes the result into the memory
// of `target` (through views; broadcast and cast), and moves history as torch does. `compute` gets a stand-in for the
// old content. Throws kRuntime for a leaf that requires grad, kValue when the result's shape does not fit.
void update_in_place(const Value& target, const std::function<Value(const Value& old)>& compute);
// The same when the result does not depend on the old content (copy_, fill_, __setitem__ on a view).
void write_in_place(const Value& target, const Value& result);
// `base` with the view made by `steps` replaced by `value`; differentiable, a new tensor.
Value view_scatter(const Value& base, const std::vector<ViewStep>& steps, const Value& value);

}  // namespace sluice
