#pragma once
// Bodies of nodes, which are graphs, as kernels.
#include <vector>

#include "compiler/pass.h"
#include "graph/builder.h"

namespace sluice::compiler {

// The body as a graph, whose inputs have these types. Its nodes are stamped with the context.
graph::Graph graph_of_body(const AttrGraph& body, const std::vector<TensorType>& types, graph::NodeContext context,
                           const DeviceId& device);

// A graph without variables as calls of kernels of `device` (loop_attr::kProgram): it goes through the passes of graphs
// and of lowering as any graph does, but for those that are about a step as a whole.
AttrGraph compile_body(graph::Graph graph, const PassContext& outer, const DeviceId& device);

}  // namespace sluice::compiler
