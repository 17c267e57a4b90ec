#pragma once
// Clusters of nodes that can each become one node, all at once, without a cycle.
#include <vector>

#include "graph/graph.h"

namespace sluice::graph {

// Per node, the number of its cluster, or -1. `kinds`: per node -1 where it is in none, else nodes of one kind may be
// in one. Two nodes of a cluster are joined by edges inside of it. Clusters are numbered in an order in which they can
// be computed: by their last members.
//
// There is no cycle, by construction. Each node has a level: at least that of what it reads, and one more where that is
// of another kind. Members of a cluster have one kind and one level, so a path that leaves a cluster goes up, and does
// not come back. Then clusters that read each other are joined where no path between them leads around, which keeps
// that.
std::vector<int> convex_clusters(const Graph& graph, const std::vector<int>& kinds);

}  // namespace sluice::graph
