// Removes nodes that no output, variable update or effect needs, and variables that nothing reads or writes.
#include "graph/dead_code.h"

#include "compiler/pass.h"

namespace sluice::compiler {

int dead_code(graph::Graph& graph, PassContext&) { return graph::remove_dead_code(graph); }

}  // namespace sluice::compiler
