#pragma once
// Devices in a row, over which logical tensors are laid.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/attr.h"
#include "base/device.h"
#include "base/sbp.h"

namespace sluice {

class DeviceMesh {
 public:
  DeviceMesh() = default;
  // Throws kValue when there is no device, one is named twice, or kinds differ.
  explicit DeviceMesh(std::vector<DeviceId> devices);
  int size() const { return static_cast<int>(devices_.size()); }
  const DeviceId& operator[](int i) const { return devices_[i]; }
  const std::vector<DeviceId>& devices() const& { return devices_; }
  std::vector<DeviceId> devices() && { return std::move(devices_); }
  std::string str() const;  // "sim:0-3"; "sim:0,sim:2"; "0/sim:0" is "sim:0", "1/sim:0-1"
  bool operator==(const DeviceMesh&) const = default;

 private:
  std::vector<DeviceId> devices_;
};

// The devices over which a logical tensor lies, and how it lies there.
struct GlobalPlacement {
  DeviceMesh mesh;
  Sbp sbp;
  std::string str() const { return sbp.str() + " on " + mesh.str(); }
};

// Converts to the attributes `mesh` (its devices), `sbp` ("split", "broadcast", "partial_sum") and `axis`, in this
// order, and back. Throws kValue.
NamedAttrs placement_attrs(const GlobalPlacement& placement);
GlobalPlacement placement_of(const Strings& mesh, const std::string& sbp, int64_t axis);

// Reads what str() prints: devices and runs of them, separated by commas. Throws kValue.
DeviceMesh parse_mesh(std::string_view text);

// [start, stop) of part `i` of `size` elements cut into `n`: the first size % n parts have one more
// (torch.tensor_split).
std::pair<int64_t, int64_t> part_of(int64_t size, int n, int i);

}  // namespace sluice
