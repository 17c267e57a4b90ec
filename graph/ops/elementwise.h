#pragma once
// Elementwise mathematics. Operands broadcast and promote as in torch; functions carry torch's names and semantics.
#include <span>
#include <string>

#include "graph/op_def.h"
#include "graph/operand.h"

namespace sluice::ops {

// A function for each entry of base/scalar/unary.inc and binary.inc: sin(x), add(a, b). Its definition says what it is
// (unary.cpp, binary.cpp). Those without an expression for integers give float32 of them.
#define UNARY(NAME) Value NAME(const Value& x);
#define BINARY(NAME) Value NAME(const Operand& a, const Operand& b);
#include "base/scalar/names.inc"
//
#include "base/scalar/unary.inc"
//
#include "base/scalar/binary.inc"
//
#include "base/scalar/undefine.inc"

Value square(const Value& x);
// a + weight * (b - a)
Value lerp(const Value& a, const Value& b, const Operand& weight);

// An op and the function that calls it, of one operand or of two; the other is null.
struct TensorFunction {
  const OpDef* op;
  Value (*unary)(const Value& x);
  Value (*binary)(const Operand& a, const Operand& b);
};
std::span<const TensorFunction> unary_functions();
std::span<const TensorFunction> binary_functions();

}  // namespace sluice::ops
