#pragma once
// Chains of elementwise ops as one op, which the compiler makes for devices that have a kernel for it.
#include <span>
#include <vector>

#include "base/scalar_ops.h"
#include "graph/op_def.h"
#include "graph/value.h"

namespace sluice::ops {

// The chain is its attribute `body`. REQUIRES: of the ops in it, can_be_step().
const OpDef& fused_op();
// The sum or the mean of all elements that a chain gives; its operands are of one shape, or one element. The second
// attribute says which.
const OpDef& fused_reduce_op();

// Has the op one output, no more operands than a step may have, and at most a mode or a dtype? Dropout is one, too.
bool can_be_step(const OpDef& op);

// Adds what a step of a body gives, to the values that are there: its type, or the value. Throws Error where the op is
// no step.
void add_step(const AttrCall& step, std::vector<TensorType>& types);
void add_step(const AttrCall& step, std::vector<Value>& values);

std::span<const OpDef* const> fused_ops();

}  // namespace sluice::ops
