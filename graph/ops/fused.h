#pragma once
// Chains of elementwise ops as one op, which the compiler makes for devices that have a kernel for it.
#include <span>

#include "base/scalar_ops.h"
#include "graph/op_def.h"

namespace sluice::ops {

// The chain is its attribute `body`. REQUIRES: of the ops in it, can_be_step().
const OpDef& fused_op();

// Has the op one output, no more operands than a step may have, and at most a mode or a dtype?
bool can_be_step(const OpDef& op);

std::span<const OpDef* const> fused_ops();

}  // namespace sluice::ops
