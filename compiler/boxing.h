#pragma once
// From one way to lie on devices to another: slices, concatenations and sums, in an order that is the same on every
// device, so that copies of one value are bitwise equal. The copies between devices are lowering's; between even parts
// on one device of each of several ranks, collectives move the bytes.
#include <optional>
#include <string>
#include <vector>

#include "base/device_mesh.h"
#include "graph/builder.h"

namespace sluice::compiler {

inline int rank_of(const std::optional<DeviceId>& device) { return device ? device->rank : 0; }

// Devices and how a value lies on them.
struct Spread {
  std::vector<std::optional<DeviceId>> devices;  // none: the one where nodes without placement run
  NdSbp sbp;
  bool off_mesh = false;
  DeviceMesh mesh = {};  // of what lies on one
  int size() const { return static_cast<int>(devices.size()); }
  MeshShape shape() const { return off_mesh ? MeshShape{size()} : shape_of(mesh); }
  std::string str() const;  // "S(0) on sim:0-1"
  bool operator==(const Spread&) const = default;
};
Spread spread_over(const DeviceMesh& mesh, const NdSbp& sbp);
// The spread of nodes without placement: `device` of each rank, or, where there is a single rank, no device in
// particular.
Spread off_mesh(const DeviceId& device, int ranks);

using Shards = std::vector<Value>;  // one per device

// Devices in a row, as one axis of a mesh has them.
struct Row {
  std::vector<std::optional<DeviceId>> devices;
  Sbp sbp;
  int size() const { return static_cast<int>(devices.size()); }
};

// Names the conversion by its effect: "all_reduce", "reduce_scatter", "all_gather", "all_to_all" on the same devices;
// "local" where nothing travels; "send" from mesh to mesh; "broadcast", "scatter" on to a mesh; "fetch", "gather",
// "reduce" off it.
const char* boxing_kind(const Spread& from, const Spread& to);

class Section;
struct BoxingStep;

// Are nodes made for the rank of the device; null: for all ranks.
bool is_made(const std::optional<DeviceId>& device, const Section* section);
// The distance of a device to another: 0, itself; 1, on its rank; 2, at the position of its rank in a section; 3,
// elsewhere.
int distance_of(const std::optional<DeviceId>& from, const std::optional<DeviceId>& to, const Section* section);
// The i-th shard, which lies on `device`. Throws kUnsupported where none was made.
const Value& there(const Shards& shards, int i, const std::optional<DeviceId>& device);

// A conversion from row to row. REQUIRES: as box().
Shards box_row(graph::GraphBuilder& builder, const TensorType& type, const Shards& shards, const Row& from,
               const Row& to, const Section* section = nullptr);

// On rows of devices, one conversion. To, from and between meshes of several axes, the steps of boxing_path.h: those of
// `path`, where it is known.
//
// Makes the nodes; each carries the device on which it runs. Shards of ranks outside the section are undefined
// and none are made; throws kUnsupported where one of them is needed. REQUIRES: `builder` is the current executor.
Shards box(graph::GraphBuilder& builder, const TensorType& type, const Shards& shards, const Spread& from,
           const Spread& to, const Section* section = nullptr, const std::vector<BoxingStep>* path = nullptr);

}  // namespace sluice::compiler
