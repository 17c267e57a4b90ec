#pragma once
// Elementwise ops without kernels of their own: those of what they decompose into run as one, in one pass over memory.
#include <span>

#include "graph/op_def.h"
#include "graph/operand.h"

namespace sluice::ops {

// x within [min, max], all of one dtype; max where the bounds cross, NaN where one of the three is.
Value clamp_between(const Value& x, const Value& min, const Value& max);
// x * x * x, of floating and complex numbers.
Value cube(const Value& x);
// a / b without its fraction, of floating numbers. Its gradient is 0 wherever it jumps, too, and where b is 0.
Value truncated_quotient(const Operand& a, const Operand& b);

std::span<const OpDef* const> composed_ops();

}  // namespace sluice::ops
