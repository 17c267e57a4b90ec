#pragma once
// The device for what a call of the program makes besides its arguments, and the line that failures of devices name.
#include <optional>

#include "graph/executor.h"
#include "graph/origin.h"
#include "source_location.h"
#include "tensor/trace.h"

namespace sluice::python {

// For as long as the call runs. The device is that of its tensors, null: the cpu; a graph places values itself.
// REQUIRES: made with the GIL held.
class CallPlace {
 public:
  explicit CallPlace(const DeviceId* device) {
    const bool traced = device != nullptr && current_trace() != nullptr;
    const DeviceId there = device == nullptr || traced ? DeviceId{} : *device;
    if (creation_device() != there) creation_.emplace(there);
    if (device == nullptr || traced || OriginScope::innermost() != nullptr) return;
    line_.emplace();
    line_->source = user_location();  // failures of devices come late
    origin_.emplace(Role::kForward, &*line_);
  }

  static const DeviceId* of(const Value* value) {
    const bool there = value != nullptr && value->defined() && value->device().kind != DeviceKind::kCpu;
    return there ? &value->device() : nullptr;
  }

 private:
  std::optional<CreationScope> creation_;
  std::optional<Provenance> line_;
  std::optional<OriginScope> origin_;
};

}  // namespace sluice::python
