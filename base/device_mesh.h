#pragma once
// Devices in a row or in a block of several axes, over which logical tensors are laid.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/attr.h"
#include "base/device.h"
#include "base/nd_sbp.h"
#include "base/shape.h"

namespace sluice {

// Devices in the order of their coordinates, the last of which counts fastest.
class DeviceMesh {
 public:
  struct Axis {
    int size = 1;
    std::string name = {};  // "" for an axis without a name
  };

  DeviceMesh() = default;
  // A row. Throws kValue when there is no device, one is named twice, or kinds differ.
  explicit DeviceMesh(std::vector<DeviceId> devices);
  // Throws kValue as well when the sizes do not multiply to the number of devices, or names are bad or used twice.
  DeviceMesh(std::vector<DeviceId> devices, std::vector<Axis> axes);
  int size() const { return static_cast<int>(devices_.size()); }
  const DeviceId& operator[](int i) const { return devices_[i]; }
  const std::vector<DeviceId>& devices() const& { return devices_; }
  std::vector<DeviceId> devices() && { return std::move(devices_); }
  const std::vector<Axis>& axes() const { return axes_; }
  bool is_row() const { return axes_.size() <= 1; }
  // "sim:0-3"; "sim:0,sim:2"; "0/sim:0" is "sim:0", "1/sim:0-1"; "sim:0-3 (2, 2)"; "sim:0-3 (dp=2, tp=2)"
  std::string str() const;
  // The names of axes do not count.
  bool operator==(const DeviceMesh& other) const;

 private:
  std::vector<DeviceId> devices_;
  std::vector<Axis> axes_;
};

// The sizes of a mesh's axes.
using MeshShape = std::vector<int>;
MeshShape shape_of(const DeviceMesh& mesh);
// The coordinates of device `i`.
MeshShape coordinates(const MeshShape& shape, int i);

// The devices over which a logical tensor lies, and how it lies there.
struct GlobalPlacement {
  DeviceMesh mesh;
  NdSbp sbp;
  std::string str() const { return sbp.str() + " on " + mesh.str(); }
};

// Reads what str() prints. Throws kValue.
GlobalPlacement parse_placement(std::string_view text);

// [start, stop) of each dimension.
using Spans = std::vector<std::pair<int64_t, int64_t>>;
// The part of a tensor of `shape` that device `i` has: all of what is no split. Throws kValue unless there is one sbp
// for each axis, splits are of dimensions that there are, and every device gets at least one element.
Spans spans_of(const Shape& shape, const MeshShape& mesh, const NdSbp& sbp, int i);
// The checks of spans_of() alone, for all devices; errors call the tensor `what`.
void check_layout(const Shape& shape, const DeviceMesh& mesh, const NdSbp& sbp, const std::string& what);

// Converts to the attributes `mesh`, `sbp` and `axis`, in this order, and back. Of a row they are its devices, "split",
// "broadcast" or "partial_sum", and what is split; of a mesh of several axes its text, that of the sbp, and 0. Throws
// kValue.
NamedAttrs placement_attrs(const GlobalPlacement& placement);
GlobalPlacement placement_of(const Strings& mesh, const std::string& sbp, int64_t axis);

// Reads what str() prints: devices and runs of them, separated by commas, and the axes in parentheses. Throws kValue.
DeviceMesh parse_mesh(std::string_view text);

// [start, stop) of part `i` of `size` elements cut into `n`: the first size % n parts have one more
// (torch.tensor_split).
std::pair<int64_t, int64_t> part_of(int64_t size, int n, int i);

}  // namespace sluice
