#pragma once
// Comparison, logic, selection and casts. Comparisons and logical functions give bool.
#include <span>

#include "graph/op_def.h"
#include "graph/ops/operand.h"

namespace sluice::ops {

Value eq(const Operand& a, const Operand& b);
Value ne(const Operand& a, const Operand& b);
Value lt(const Operand& a, const Operand& b);
Value le(const Operand& a, const Operand& b);
Value gt(const Operand& a, const Operand& b);
Value ge(const Operand& a, const Operand& b);
Value logical_not(const Value& x);
Value logical_and(const Operand& a, const Operand& b);
Value logical_or(const Operand& a, const Operand& b);
Value logical_xor(const Operand& a, const Operand& b);
// Of integers and bool.
Value bitwise_and(const Operand& a, const Operand& b);
Value bitwise_or(const Operand& a, const Operand& b);
Value bitwise_xor(const Operand& a, const Operand& b);
Value bitwise_not(const Value& x);
Value isnan(const Value& x);
Value isinf(const Value& x);
Value isfinite(const Value& x);
// `cond` bool.
Value where(const Value& cond, const Operand& a, const Operand& b);
Value masked_fill(const Value& x, const Value& mask, double value);
// |a - b| <= atol + rtol * |b|, elementwise; equal_nan: NaN equals NaN.
Value isclose(const Value& a, const Value& b, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false);
// The same value when it has that dtype already.
Value cast(const Value& x, DType dtype);

std::span<const OpDef* const> comparison_ops();

}  // namespace sluice::ops
