#pragma once
// Branches in the body of a loop: in which of them a value is made, and how it comes out of them and back.
#include <map>
#include <span>
#include <vector>

#include "graph/graph.h"
#include "graph/value.h"

namespace sluice {

class TraceExecutor;

// One of the branches that op "case" makes.
struct BranchTaken {
  graph::ValueId index;
  int64_t taken = 0, n = 0;
  bool operator==(const BranchTaken&) const = default;
};

class BranchPaths {
 public:
  // The paths of nodes from number `first` on.
  BranchPaths(const graph::Graph& graph, size_t first);
  // The branches that a value is made in, from the outermost to the innermost; none: it is there whatever is taken.
  std::vector<BranchTaken> of(graph::ValueId value) const;

 private:
  std::map<graph::ValueId, std::vector<BranchTaken>> paths_;
};

// The value behind the branches: zeros where they are not all taken.
Value out_of(TraceExecutor& trace, std::span<const BranchTaken> path, Value value);
// The value as the innermost branch reads it.
Value into(TraceExecutor& trace, std::span<const BranchTaken> path, Value value);

}  // namespace sluice
