#pragma once
// Do a plan's kernels agree with the definitions of their ops? Kernels trust their operands' types, so a plan that was
// not compiled here is held against the definitions before it runs.
#include "graph/op_def.h"
#include "plan/plan.h"

namespace sluice::graph {

// Attributes complete and of the right types, operands as `infer` says. Ops that `ops` does not have are let through: a
// kernel table refuses those it has no kernel for. Throws Error "plan '<name>': kernel '<kernel>': ...".
void check_kernels(const plan::Plan& plan, const OpRegistry& ops);

}  // namespace sluice::graph
