#pragma once
// A cluster of nodes that a foreign backend may compute.
#include <span>

#include "graph/op_def.h"

namespace sluice::ops {

// Attributes by position. `body` is the cluster as ops, which backends are given; `program` is the same as kernels
// (loop_attr::kProgram), which Sluice runs itself where there is no backend.
namespace foreign_attr {
enum : int { kBackend, kOptions, kBody, kProgram };
}
const OpDef& foreign_op();

std::span<const OpDef* const> foreign_ops();

}  // namespace sluice::ops
