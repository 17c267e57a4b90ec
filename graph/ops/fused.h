#pragma once
// Chains of elementwise ops as one op, which the compiler makes for devices that have a kernel for it.
#include <span>

#include "base/fused_steps.h"
#include "graph/op_def.h"

namespace sluice::ops {

// The chain's attribute `steps` is fused_text(). REQUIRES: of the ops in it, can_be_step().
const OpDef& fused_op();

// Has the op one output, and no more params than a FusedStep has room for?
bool can_be_step(const OpDef& op);
// One op of a chain.
FusedStep step_of(const OpDef& op, const Attrs& attrs, std::vector<int> operands);

std::span<const OpDef* const> fused_ops();

}  // namespace sluice::ops
