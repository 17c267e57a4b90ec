#pragma once
// How many of a host's cores the kernels of each stream may use.
#include <map>

#include "compiler/lowering/places.h"
#include "compiler/pass.h"

namespace sluice::compiler {

// The cores of each compute stream of a CPU; a host stream's kernels use one. With options.cores, that many each.
// Otherwise they are what makes a step soonest by the costs of the devices: each stream has cores of its own, as many
// as its work asks for, or all of them have all cores and take turns. Turns are better where whole cores cannot be
// shared out as the work is. What the machine's costs have measured counts instead of predictions; streams with
// functions of the program of which nothing is known keep a core. REQUIRES: every node has its placement.
std::map<graph::Placement, int> stream_cores(const graph::Graph& graph, const PassContext& context,
                                             const Places& places);

}  // namespace sluice::compiler
