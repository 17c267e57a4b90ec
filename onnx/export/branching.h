#pragma once
// Which nodes of a graph belong to branches, of which a step takes one.
#include <set>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace sluice::onnx::exporting {

// The index that decides, and the number of the branch.
using Branch = std::pair<graph::ValueId, int64_t>;
using BranchSet = std::set<Branch>;

// The nodes between op "case" and op "esac". If some branch of an index does not end in an esac, or meets another one
// of the same index, the index counts for nothing here: its nodes are as all others, and case and esac as ops.
class Branching {
 public:
  explicit Branching(const graph::Graph& graph);
  // The branches that a step must take for the node to run.
  const BranchSet& of(size_t node) const { return nodes_[node]; }
  bool begins(size_t node) const;  // a case
  bool ends(size_t node) const;    // an esac
  // The nodes, in order, that `results` need, and that do not run in `within` itself.
  std::vector<size_t> needed(const std::vector<graph::ValueId>& results, const BranchSet& within) const;
  // How many esacs from this one on are the results of the same branches.
  size_t results_from(size_t node) const;

 private:
  bool sorted();

  const graph::Graph& graph_;
  std::vector<BranchSet> nodes_;
  std::set<graph::ValueId> open_;  // indexes that count for nothing
};

}  // namespace sluice::onnx::exporting
