#pragma once
// Makes one collective of several: fewer messages, each larger.
#include <cstdint>

#include "graph/graph.h"

namespace sluice::compiler {

// Collectives of one kind between the same ranks become one, in the order of the program, until a rank would give it
// more than `most_bytes`, or it has `most_ops` of them. One that needs what another gives begins anew. Each rank copies
// what it gives into one piece, and what it gets out of it, so that results are the same bits. Returns how many became
// part of another.
int fuse_collectives(graph::Graph& graph, uint64_t most_bytes, int most_ops);

}  // namespace sluice::compiler
