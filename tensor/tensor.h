#pragma once
// Tensors: what a Value is in eager mode (memory) and while tracing (a graph value), and the helpers on them.
//
// Thread safety: as a torch tensor: concurrent reads are fine, a write needs the tensor for itself.
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/device_mesh.h"
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

// The part that eager and traced tensors share. `spec()` of a traced tensor is the layout an eager one would have: it
// decides, as in eager mode, which view ops alias and which copy.
class TensorImpl : public ValueImpl {
 public:
  const TensorSpec& spec() const { return spec_; }
  // The tensor this one is a view of (never itself a view), or null.
  const std::shared_ptr<TensorImpl>& base() const { return base_; }
  const std::vector<ViewStep>& view_steps() const { return steps_; }
  uint64_t version() const override { return *version_; }
  void bump_version() { ++*version_; }
  const std::shared_ptr<uint64_t>& version_counter() const { return version_; }
  // A view takes its history anew after an in-place write has changed that of its base.
  void refresh_history() override;
  // An in-place write gave this base another history / this view took its base's history as it is now.
  void history_changed() { ++history_; }
  void history_is_current() { base_history_ = base_->history_; }
  // Says who made this view, or what it is a view of, where that is no recorded call: then nobody can say what of its
  // base's history a write through it changes.
  enum class Unrecorded : uint8_t { kNo, kGradientsOff, kFunction };  // kFunction: one with a backward of its own
  void made_by_function() { unrecorded_ = Unrecorded::kFunction; }
  // Throws kRuntime where it is such a view; `what` is what happens to it.
  void check_recorded(const char* what) const;

  // Only a front end reads and writes this: the object that stands for the tensor, which it does not own, and what is
  // to outlive such an object.
  struct FrontEnd {
    void* object = nullptr;
    std::shared_ptr<void> kept;
  } front_end;

 protected:
  TensorImpl(TensorSpec spec, DeviceId device, bool traced, std::shared_ptr<uint64_t> version);
  // Makes this a view of `parent`, or of what that is a view of. Versions are shared.
  void set_base(const std::shared_ptr<TensorImpl>& parent, ViewStep step);
  TensorSpec spec_;
  std::shared_ptr<uint64_t> version_;
  std::shared_ptr<TensorImpl> base_;
  std::vector<ViewStep> steps_;
  uint64_t history_ = 0;       // of a base
  uint64_t base_history_ = 0;  // of a view: that of its base when it took its own

 private:
  Unrecorded unrecorded_ = Unrecorded::kNo;
};

inline TensorImpl& tensor_impl(const Value& value) { return static_cast<TensorImpl&>(*value.impl()); }

// Memory that may not be there yet: the result of a graph step.
class PendingStorage {
 public:
  virtual ~PendingStorage() = default;
  virtual bool ready() const = 0;
  // Waits at most so long; true when ready. For callers who must look at signals meanwhile.
  virtual bool wait_for(std::chrono::nanoseconds slice) = 0;
  virtual std::shared_ptr<Storage> wait() = 0;  // blocks; throws the step's error
};

// A logical tensor over devices, as this process has it.
struct GlobalTensor : GlobalPlacement {
  std::optional<TensorSpec> component;  // in a job of several ranks: what this one's memory holds; unset: the whole
};

// Memory: a storage seen through an offset and strides. Views share storage and version.
class EagerImpl final : public TensorImpl {
 public:
  EagerImpl(std::shared_ptr<Storage> storage, TensorSpec spec, DeviceId device,
            std::shared_ptr<uint64_t> version = nullptr, int64_t offset = 0);
  EagerImpl(std::shared_ptr<PendingStorage> pending, const TensorType& type);
  // A view of `parent` made by `step`, of elements of `dtype`. Throws kRuntime where none of them begins at its start.
  EagerImpl(const std::shared_ptr<EagerImpl>& parent, ViewStep step, const OpDef::ViewSpec& view, DType dtype);

  // The same memory without history; does not wait for it.
  std::shared_ptr<EagerImpl> alias() const;
  // The same for others who get its address, as long as they hold it: they may write there without telling.
  std::shared_ptr<EagerImpl> lend() const;

  // Throws the error of the step that makes it, and kRuntime where its memory was donated.
  const std::shared_ptr<Storage>& storage() const {
    if (pending_ && !resolved_.load(std::memory_order_acquire)) [[unlikely]]
      resolve();
    if (storage_) [[likely]]
      storage_->check_here();
    return storage_;
  }
  bool ready() const;
  bool wait_for(std::chrono::nanoseconds slice) const;
  // Whether the host can address the content: of the cpu's, and of devices that compute in host memory.
  bool on_host() const {
    return device().kind == DeviceKind::kCpu || storage()->space().kind != plan::SpaceKind::kDevice;
  }
  int64_t offset() const { return offset_; }  // in elements
  char* data() const {
    return static_cast<char*>(storage()->data()) + offset_ * static_cast<int64_t>(dtype_size(type_.dtype));
  }
  bool unshared() const override;
  // From now on the content lives in `storage`, where a plan wants it. REQUIRES: contiguous, not a view.
  void move_to(std::shared_ptr<Storage> storage, DeviceId device);
  // Graph sessions that have the storage bound; while there are any it may not move.
  std::atomic<int> sessions{0};
  // How graphs are to lay it over devices; null: not at all. Eager ops refuse it, and readers of all of it do where
  // its memory holds a component; type() and spec() are the whole's.
  std::shared_ptr<const GlobalTensor> global;
  // The spec of what its memory holds.
  const TensorSpec& memory_spec() const { return global && global->component ? *global->component : spec_; }
  // From now on it lies so, and is logically a `type`; null: what its memory holds. REQUIRES: not a view.
  void lay(std::shared_ptr<const GlobalTensor> how, const TensorType& type);
  // Throws kRuntime, naming `what` wants all of it, when the memory holds a component.
  void check_whole(const char* what) const;
  // Its parts on several devices, while sessions use them.
  std::vector<std::weak_ptr<class ShardedVariable>> sharded;

 private:
  void resolve() const;
  mutable std::shared_ptr<Storage> storage_;
  std::unique_ptr<Lent> lent_;
  std::shared_ptr<PendingStorage> pending_;
  mutable std::atomic<bool> resolved_{false};
  int64_t offset_ = 0;
};

// A Value with torch's everyday methods. Converts to and from Value freely.
class Tensor : public Value {
 public:
  Tensor() = default;
  Tensor(Value value) : Value(std::move(value)) {}  // NOLINT: the same thing under another name

  // Memory comes from the current executor's engine, on the device that creation_device() says. Contents of empty() are
  // undefined.
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
  // The place of the first element in its memory, in elements.
  int64_t storage_offset() const;
  bool traced() const { return impl()->traced(); }
  int64_t size() const { return numel(shape()); }

  // Host access: waits for graph steps that still use the memory. The pointer is to the first element, laid out by
  // spec(). Throws kRuntime on a traced tensor ("<what>: ..."), kUnsupported on memory the host cannot address.
  // The write form counts as an in-place write.
  const void* read(const char* what = "data") const;
  void* write(const char* what = "data") const;
  // True when read() would not block.
  bool ready() const;
  // Waits at most so long for the step that makes it; true when it is there.
  bool wait_for(std::chrono::nanoseconds slice) const;
  // The contents as contiguous bytes, from any device.
  void copy_to_host(void* data) const;
  // The only element, as bool, int64 or double. Throws kValue unless size() == 1.
  Attr item() const;

  Tensor to(DType dtype) const;  // itself when it already is
  Tensor to(const DeviceId& device) const;
  Tensor contiguous() const;
  Tensor clone() const;   // differentiable copy
  Tensor detach() const;  // the same memory without history

  // Autograd.
  bool is_leaf() const;
  void set_requires_grad(bool on) const;  // kRuntime on a non-leaf (to false), kType on integers
  Tensor grad() const;                    // undefined when there is none
  void set_grad(const Value& grad) const;
  void retain_grad() const;
  // Runs when this tensor's gradient is known; a defined result replaces it. Returns an id for remove_hook().
  int add_hook(std::function<Value(const Value&)> hook) const;
  // A hook of a leaf runs when the leaf's grad() is complete, and gets the leaf.
  int add_post_accumulate_grad_hook(std::function<void(const Value&)> hook) const;
  void remove_hook(int id) const;
};

// The body of every in-place op `target.op_(...)`: computes from the old content, writes the result into the memory
// of `target` (through views; broadcast and cast), and moves history as torch does. `compute` gets a stand-in for the
// old content. Throws kRuntime for a leaf that requires grad, kValue when the result's shape does not fit.
// recorded: `compute` may read what needs gradients. at_once: the first op call on `old` whose result fits there may
// write it there, since no later one reads `old`.
struct InPlaceOptions {
  bool recorded = true;
  bool at_once = false;
};
void update_in_place(const Value& target, const std::function<Value(const Value& old)>& compute,
                     const InPlaceOptions& options = {});
// The body of every call with `out=target`: runs `compute`, whose first op call with a result of target's type writes
// it there and gives `target`, if `arguments`, all that compute reads, do not share its memory. Otherwise compute's
// result is still to be written there, by write_in_place().
void compute_for(const Value& target, std::span<const Value> arguments, const std::function<void()>& compute);
// The same when the result does not depend on the old content (copy_, fill_, __setitem__ on a view).
void write_in_place(const Value& target, const Value& result);
// `base` with the view made by `steps` replaced by `value`; differentiable, a new tensor.
Value view_scatter(const Value& base, const std::vector<ViewStep>& steps, const Value& value);

}  // namespace sluice
