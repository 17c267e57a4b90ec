#pragma once
// Expressions that are written several times.
#include <vector>

#include "graph/graph.h"

namespace sluice::graph {

// Gives for each node the first one before it that computes the same, by its op, attributes, inputs, placement and
// rate; -1: none. Random and effectful ones equal none, nor does what is computed again on purpose.
std::vector<int> equal_nodes(const Graph& graph);

}  // namespace sluice::graph
