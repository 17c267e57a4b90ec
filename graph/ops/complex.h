#pragma once
// Complex numbers and their parts. Gradients are torch's: of a real L with respect to z, dL/d conj(z), which is what
// descends along -gradient.
#include "graph/op_def.h"
#include "graph/operand.h"

namespace sluice::ops {

// The parts as a last dim of size 2, and back. Views of one memory.
Value view_as_real(const Value& z);
Value view_as_complex(const Value& parts);
Value view_as_dtype(const Value& x, DType dtype);  // the same bytes, a view
// Throws kRuntime unless both are of float32 or of float64.
void check_parts(const Value& real, const Value& imaginary);
// Joins two real tensors of one dtype, broadcast.
Value complex(const Value& real, const Value& imaginary);
// Views of a complex tensor's parts; of a real one, itself and zeros.
Value real_part(const Value& z);
Value imaginary_part(const Value& z);
// The conjugate; of real numbers, the value itself.
Value conjugate(const Value& z);

// The rule of an op that has a complex derivative f', and whose `rule` gives g f'(x): torch's gradient is g
// conj(f'(x)), which is what the rule makes of conj(g), conjugated. For real gradients it is the rule itself.
using GradRule = std::function<std::vector<Value>(const GradContext& context)>;
GradRule holomorphic(GradRule rule);

std::span<const OpDef* const> complex_ops();

}  // namespace sluice::ops
