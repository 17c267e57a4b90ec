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

// Their operands are floating, and of one dtype where they are several.
Value hardshrink(const Value& x, double lambd);
Value softshrink(const Value& x, double lambd);
Value hardtanh_of_floats(const Value& x, double min_val, double max_val);
Value threshold_of_floats(const Value& x, double threshold, double value);
Value nan_to_num_of_floats(const Value& x, double nan, double posinf, double neginf);
Value squared_difference(const Value& a, const Value& b);
// With d = |a - b|, it is factor * d * d where d is below `bound`, else slope * (d - bound / 2).
Value huber(const Value& a, const Value& b, double bound, double factor, double slope);
Value lerp_of_floats(const Value& a, const Value& b, double weight);
Value addcmul_of_floats(const Value& x, const Value& a, const Value& b, double value);
Value addcdiv_of_floats(const Value& x, const Value& a, const Value& b, double value);

std::span<const OpDef* const> composed_ops();

}  // namespace sluice::ops
