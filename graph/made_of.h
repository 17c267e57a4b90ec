#pragma once
// What composite ops are made of. The ops without a decomposition are the primitive ones.
#include <string>
#include <vector>

#include "graph/op_def.h"

namespace sluice::graph {

// Names of the ops that the decomposition of `op` calls for its samples, ascending, each once. None of a primitive op,
// as which also counts what cannot always be taken apart: a loop whose length a value of the graph says.
std::vector<std::string> made_of(const OpDef& op);

}  // namespace sluice::graph
