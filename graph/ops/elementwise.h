#pragma once
// Elementwise mathematics. Operands broadcast and promote as in torch; functions carry torch's names and semantics.
#include <span>
#include <string>

#include "graph/op_def.h"
#include "graph/ops/operand.h"

namespace sluice::ops {

Value neg(const Value& x);
Value abs(const Value& x);
Value sign(const Value& x);
Value exp(const Value& x);
Value expm1(const Value& x);
Value log(const Value& x);
Value log1p(const Value& x);
Value sqrt(const Value& x);
Value rsqrt(const Value& x);
Value reciprocal(const Value& x);
Value sin(const Value& x);
Value cos(const Value& x);
Value tanh(const Value& x);
Value erf(const Value& x);
Value floor(const Value& x);
Value ceil(const Value& x);
Value round(const Value& x);  // half to even
Value trunc(const Value& x);
Value square(const Value& x);
Value tan(const Value& x);

Value add(const Operand& a, const Operand& b);
Value sub(const Operand& a, const Operand& b);
Value mul(const Operand& a, const Operand& b);
Value div(const Operand& a, const Operand& b);           // true division; integers give float32
Value floor_divide(const Operand& a, const Operand& b);  // rounds towards minus infinity
Value remainder(const Operand& a, const Operand& b);     // sign of b
Value fmod(const Operand& a, const Operand& b);          // sign of a
Value pow(const Operand& a, const Operand& b);
Value maximum(const Operand& a, const Operand& b);  // NaN if either is
Value minimum(const Operand& a, const Operand& b);
Value atan2(const Operand& a, const Operand& b);
// a + weight * (b - a)
Value lerp(const Value& a, const Value& b, const Operand& weight);

std::span<const OpDef* const> unary_ops();
std::span<const OpDef* const> binary_ops();

}  // namespace sluice::ops
