#pragma once
// How values of a graph over several devices may lie, and what that costs.
#include <string>

#include "graph/graph.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {

struct SbpViewOptions {
  double compute_ratio = 0, wait_bytes = 0;  // as SbpSearchOptions has them; 0 and 0: bytes alone count
  bool ignore_user = false;
};

// The layouts of both policies, and the candidates of each value. Throws kValue where the graph names no mesh.
std::string sbp_view(graph::Graph graph, const SbpViewOptions& options, const TextOptions& text, bool json);

}  // namespace sluice::plan_viz
