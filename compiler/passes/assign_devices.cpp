// Gives every node that names no device the first, in the order of devices that the options give, that has a kernel of
// its op. Ops that none has are left to decompose(), whose simpler ones this pass then sees. Views go where what they
// show lies, which placement decides.
#include "compiler/collectives.h"
#include "compiler/pass.h"

namespace sluice::compiler {

int assign_devices(graph::Graph& graph, PassContext& context) {
  if (context.options.devices.empty()) return 0;
  int assigned = 0;
  for (graph::Node& node : graph.mutable_nodes()) {
    if (node.placement.device || node.placement.stream.starts_with("host") || node.op->view || is_collective(*node.op))
      continue;
    const DeviceId device = context.device_of(node);
    if (!context.has_kernel(*node.op, device.kind)) continue;
    node.placement.device = device;
    node.placed = Placed::kOrder;
    ++assigned;
  }
  return assigned;
}

}  // namespace sluice::compiler
