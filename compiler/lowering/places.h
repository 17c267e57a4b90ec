#pragma once
// Streams and memory behind placements. A placed node names its device and its stream: "compute", "host", "collective",
// or "copy_in" and "copy_out", which move values up to and down from their device; "host:1" for the second of them.
#include <string>
#include <string_view>
#include <vector>

#include "compiler/compiler.h"
#include "graph/graph.h"
#include "plan/plan.h"
#include "plan/target.h"

namespace sluice::compiler {

class Places {
 public:
  Places(const plan::Target& target, const CompileOptions& options);

  // Throws kValue for a device that the target has not.
  const plan::DeviceDesc& desc(const DeviceId& device) const;
  const std::vector<plan::DeviceDesc>& devices() const { return devices_; }

  static graph::Placement at(const DeviceId& device, plan::StreamKind kind, int index = 0);
  // The stream of a placement as at() makes it; its cores are not said. Throws kValue for any other.
  static plan::Stream stream(const graph::Placement& placement);
  static plan::StreamKind stream_kind(const graph::Placement& placement);
  // The placement of a rank's nodes that ask for none; and the rank's first host stream.
  graph::Placement usual(int rank) const;
  static graph::Placement host(int rank) { return at({rank, DeviceKind::kCpu, 0}, plan::StreamKind::kHost); }

  // Memory from which kernels of a stream read, and into which they write: its device's, but for copies up and down.
  plan::Space reads(const graph::Placement& placement) const;
  plan::Space writes(const graph::Placement& placement) const;
  static plan::Space host_memory(int rank) { return {plan::SpaceKind::kHost, {rank, DeviceKind::kCpu, 0}}; }
  // The memory of an input or output that is placed on a device.
  plan::Space port_memory(const graph::Placement& placement) const;
  static bool is_host(const plan::Space& space) { return space.kind == plan::SpaceKind::kHost; }
  // A stream that computes in a memory: `wanted` where it does.
  graph::Placement computing_in(const plan::Space& space, const graph::Placement& wanted) const;
  // It moves dense bytes by itself: a copy stream of a device that does.
  bool moves_dense_bytes(const graph::Placement& placement) const;

 private:
  plan::Space computes(const DeviceId& device) const;

  const CompileOptions& options_;
  const std::vector<plan::DeviceDesc> devices_;
};

// The index of "kind" (0) or "kind:N"; -1 when `stream` is neither.
int stream_index(std::string_view stream, std::string_view kind);

}  // namespace sluice::compiler
