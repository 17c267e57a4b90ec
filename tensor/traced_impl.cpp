#include "tensor/traced_impl.h"

#include <utility>

namespace sluice {

using graph::ValueId;

TracedImpl::TracedImpl(uint64_t trace, const TensorSpec& spec, DeviceId device, ValueId id)
    : TensorImpl(spec, device, true, nullptr), trace(trace), cell(std::make_shared<TraceCell>(id)), id(id) {}

TracedImpl::TracedImpl(uint64_t trace, std::shared_ptr<TraceCell> cell, const std::shared_ptr<TensorImpl>& parent,
                       ViewStep step, const TensorSpec& spec, ValueId id)
    : TensorImpl(spec, parent->device(), true, parent->version_counter()),
      trace(trace),
      cell(std::move(cell)),
      id(id),
      id_version(version()) {
  set_base(parent, std::move(step));
}

TracedImpl::TracedImpl(uint64_t trace, std::shared_ptr<TraceCell> cell, const TensorImpl& other,
                       std::vector<ViewStep> steps, std::shared_ptr<TensorImpl> base)
    : TensorImpl(other.spec(), other.device(), true, other.version_counter()), trace(trace), cell(std::move(cell)) {
  steps_ = std::move(steps);
  base_ = std::move(base);
  if (base_) history_is_current();
  id_version = version() - 1;  // computed when read
}

}  // namespace sluice
