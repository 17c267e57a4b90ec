#pragma once
// Additions that become one node with what makes one of their operands.
#include <functional>

#include "graph/rewriter.h"

namespace sluice::compiler {

// `maker`: which operand of an addition it can join what makes it; -1: of none, or it is no addition. REQUIRES: nobody
// else reads that operand. `fused`: the value of the new graph that takes the place of both, given the node that makes
// that operand, the addition, and the other operand. Returns how many there were.
int fuse_sums(graph::Graph& graph, const std::function<int(const graph::Node& add)>& maker,
              const std::function<graph::ValueId(graph::Rewriter& rewriter, const graph::Node& made,
                                                 const graph::Node& add, graph::ValueId other)>& fused);

}  // namespace sluice::compiler
