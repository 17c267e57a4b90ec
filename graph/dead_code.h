#pragma once
#include "graph/graph.h"

namespace sluice::graph {

// Removes nodes that no output, variable update or effect needs, and variables that nothing reads or writes. Returns
// how many there were.
int remove_dead_code(Graph& graph);

}  // namespace sluice::graph
