// TensorImpl and EagerImpl: views, versions, history.
#include <mutex>
#include <utility>

#include "graph/executor.h"
#include "graph/tape.h"
#include "tensor/tensor.h"

namespace sluice {

TensorImpl::TensorImpl(TensorSpec spec, DeviceId device, bool traced, std::shared_ptr<uint64_t> version)
    : ValueImpl({spec.dtype, spec.shape}, device, traced), spec_(std::move(spec)), version_(std::move(version)) {
  if (!version_) version_ = std::make_shared<uint64_t>(0);
}

void TensorImpl::set_base(const std::shared_ptr<TensorImpl>& parent, ViewStep step) {
  base_ = parent->base_ ? parent->base_ : parent;
  steps_ = parent->steps_;
  steps_.push_back(std::move(step));
  version_ = parent->version_;
  base_history_ = base_->history_;
  unrecorded_ = grad_enabled() ? parent->unrecorded_ : Unrecorded::kGradientsOff;
}

// A traced view has no memory of its own: its steps say where it lies in that of its base.
int64_t Tensor::storage_offset() const {
  const auto& own = static_cast<const TensorImpl&>(*impl());
  if (const auto* eager = dynamic_cast<const EagerImpl*>(&own)) return eager->offset();
  if (own.base() == nullptr) return 0;
  int64_t offset = Tensor(Value(own.base())).storage_offset();
  TensorSpec spec = own.base()->spec();
  for (const ViewStep& step : own.view_steps()) {
    const std::optional<OpDef::ViewSpec> seen = step.op->view(spec, step.attrs);
    SLUICE_CHECK_KIND(kRuntime, seen,
                      "storage_offset: {} of {} is no view of it any more; ask for it outside of graphs", step.op->name,
                      TensorType{spec.dtype, spec.shape}.str());
    offset += seen->offset;
    spec = {spec.dtype, seen->shape, seen->strides};
  }
  return offset;
}

void TensorImpl::check_recorded(const char* what) const {
  SLUICE_CHECK_KIND(kRuntime, unrecorded_ != Unrecorded::kGradientsOff,
                    "in-place: a view was created in no_grad or inference mode and {} with grad mode enabled: {}; make "
                    "the view where gradients are recorded, or write under no_grad() as well",
                    what, type_.str());
  SLUICE_CHECK_KIND(kRuntime, unrecorded_ != Unrecorded::kFunction,
                    "in-place: what a custom Function gives is a view of its argument, or the argument itself, and {}: "
                    "{}; its own backward would be lost: return a clone() from forward, or mark_dirty() the argument",
                    what, type_.str());
}

void TensorImpl::refresh_history() {
  if (!base_ || base_history_ == base_->history_) return;
  const Value base(base_);
  if (base.requires_grad() && unrecorded_ != Unrecorded::kNo) {
    if (grad_enabled()) check_recorded("its base, or another view of it, has been modified inplace");
    return;
  }
  history_is_current();
  if (!base.requires_grad()) return;
  const GradMode recording(true);
  Value view = base;
  for (const ViewStep& step : steps_) view = call1(*step.op, {view}, step.attrs);
  AutogradMeta& from = *view.impl()->autograd;
  if (!autograd) autograd = std::make_unique<AutogradMeta>();
  autograd->grad_fn = from.grad_fn;
  autograd->output_index = from.output_index;
}

EagerImpl::EagerImpl(std::shared_ptr<Storage> storage, TensorSpec spec, DeviceId device,
                     std::shared_ptr<uint64_t> version, int64_t offset)
    : TensorImpl(std::move(spec), device, false, std::move(version)), storage_(std::move(storage)), offset_(offset) {}

EagerImpl::EagerImpl(std::shared_ptr<PendingStorage> pending, const TensorType& type)
    : TensorImpl(TensorSpec::contiguous(type), {}, false, nullptr), pending_(std::move(pending)) {}

namespace {

// `offset` elements of one dtype, counted in those of another.
int64_t offset_in(DType to, DType from, int64_t offset) {
  if (to == from) return offset;
  const int64_t bytes = offset * static_cast<int64_t>(dtype_size(from)), size = static_cast<int64_t>(dtype_size(to));
  SLUICE_CHECK_KIND(
      kRuntime, bytes % size == 0,
      "view: self.storage_offset() must be divisible by {}: Tensor must have a storage_offset divisible by it: got "
      "{}, of {} seen as {}; clone() it",
      size / static_cast<int64_t>(dtype_size(from)), offset, dtype_name(from), dtype_name(to));
  return bytes / size;
}

}  // namespace

EagerImpl::EagerImpl(const std::shared_ptr<EagerImpl>& parent, ViewStep step, const OpDef::ViewSpec& view, DType dtype)
    : TensorImpl({dtype, view.shape, view.strides}, parent->device(), false, parent->version_),
      storage_(parent->storage()),
      offset_(offset_in(dtype, parent->type_.dtype, parent->offset_) + view.offset) {
  set_base(parent, std::move(step));
}

std::shared_ptr<EagerImpl> EagerImpl::alias() const {
  if (storage_) storage_->check_here();
  auto alias = std::make_shared<EagerImpl>(nullptr, spec_, device_, version_, offset_);
  alias->global = global;
  if (pending_ && !resolved_.load(std::memory_order_acquire))
    alias->pending_ = pending_;
  else
    alias->storage_ = storage_;
  return alias;
}

std::shared_ptr<EagerImpl> EagerImpl::lend() const {
  std::shared_ptr<EagerImpl> lent = alias();
  lent->lent_ = std::make_unique<Lent>(storage());
  return lent;
}

bool EagerImpl::unshared() const {
  const bool one_block = !storage_.owner_before(version_) && !version_.owner_before(storage_);
  return !pending_ && storage_.use_count() == (one_block ? 2 : 1) && is_dense(spec_.shape, spec_.strides);
}

bool EagerImpl::wait_for(std::chrono::nanoseconds slice) const { return ready() || pending_->wait_for(slice); }
bool EagerImpl::ready() const { return !pending_ || resolved_.load(std::memory_order_acquire) || pending_->ready(); }

void EagerImpl::resolve() const {
  static std::mutex mutex;  // several threads may read a result first
  std::shared_ptr<Storage> storage = pending_->wait();
  const std::lock_guard lock(mutex);
  if (resolved_.load(std::memory_order_relaxed)) return;
  storage_ = std::move(storage);
  resolved_.store(true, std::memory_order_release);
}

void EagerImpl::lay(std::shared_ptr<const GlobalTensor> how, const TensorType& type) {
  spec_ = how && how->component ? TensorSpec::contiguous(type) : memory_spec();
  type_ = {spec_.dtype, spec_.shape};
  global = std::move(how);
}

void EagerImpl::check_whole(const char* what) const {
  SLUICE_CHECK_KIND(kRuntime, !global || !global->component,
                    "{}: this rank holds its component of the tensor alone: {}; use to_global(sbp=broadcast) on all "
                    "ranks for the whole, to_local() for the component",
                    what, global->str());
}

void EagerImpl::move_to(std::shared_ptr<Storage> storage, DeviceId device) {
  storage_ = std::move(storage);
  device_ = device;
}

}  // namespace sluice
