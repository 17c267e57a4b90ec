#pragma once
// The part of a graph that a foreign backend would take.
#include <string>
#include <vector>

#include "graph/graph.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {

struct PartitionOptions {
  std::string backend;
  std::vector<std::string> options;
  bool why = false, dot = false;
};

// Loads the backend, asks it, and shows the clusters that the compiler would make. Throws as load_foreign() does.
std::string partition_view(graph::Graph graph, const PartitionOptions& options, const TextOptions& text, bool json);

}  // namespace sluice::plan_viz
