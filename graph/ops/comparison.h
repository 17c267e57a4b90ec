#pragma once
// Comparison, logic, selection and casts. Comparisons and logical functions give bool.
#include <span>

#include "graph/ops/elementwise.h"

namespace sluice::ops {

// A function for each entry of base/scalar/comparison.inc: eq(a, b), isnan(x).
#define UNARY(NAME) Value NAME(const Value& x);
#define BINARY(NAME) Value NAME(const Operand& a, const Operand& b);
#include "base/scalar/names.inc"
//
#include "base/scalar/comparison.inc"
//
#include "base/scalar/undefine.inc"

Value bitwise_not(const Value& x);
Value isfinite(const Value& x);
// `cond` bool.
Value where(const Value& cond, const Operand& a, const Operand& b);
// x where `mask` is false, else `value`, a number or a tensor of rank 0; in the dtype of x.
Value masked_fill(const Value& x, const Value& mask, const Operand& value);
// |a - b| <= atol + rtol * |b|, elementwise; equal_nan: NaN equals NaN.
Value isclose(const Value& a, const Value& b, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false);
// The same value when it has that dtype already.
Value cast(const Value& x, DType dtype);

std::span<const TensorFunction> comparison_functions();
std::span<const OpDef* const> selection_ops();

}  // namespace sluice::ops
