#pragma once
// Definitions of ops whose mathematics stands in base/scalar: what is alike in all of them follows from the entry.
#include <optional>
#include <utility>
#include <vector>

#include "base/scalar_ops.h"
#include "graph/op_def.h"
#include "graph/operand.h"

namespace sluice::ops {

struct ScalarDef {
  const ScalarOp* scalar;
  OpDef op;
};

// The samples of an operand lie here, where the function is smooth.
struct Range {
  double low = -1, high = 1;
};
// Gradients of the operands before broadcasting is undone; undefined: zero.
using ScalarGrad = std::vector<Value> (*)(const GradContext& context);
using SbpRule = std::vector<SbpRow> (*)(Types inputs, const Attrs& attrs);

// REQUIRES: there is such an entry. Floats get samples in the ranges, integers where the entry has an expression.
// `holomorphic`: where the op takes complex numbers, the rule gives g f'(x) (graph/ops/complex.h); else it is the
// gradient of complex ones as it is.
ScalarDef unary_def(const char* name, const char* doc, SbpRule sbp, Range x, ScalarGrad grad, bool holomorphic = true);
ScalarDef binary_def(const char* name, const char* doc, SbpRule sbp, Range a, Range b, ScalarGrad grad);
// Without a gradient, with samples of these dtypes.
ScalarDef discrete_def(const char* name, const char* doc, const std::vector<DType>& dtypes);

// The op on operands of one dtype: as they are promoted, or floats where the entry has no expression for integers.
Value call_scalar(const ScalarDef& def, const Value& x);
Value call_scalar(const ScalarDef& def, const Operand& a, const Operand& b);
// The result's dtype, if it is one of the floating dtypes of 16 bits, whose functions are computed in float32.
std::optional<DType> sixteen_bits(const Operand& a, const Operand& b);
// The op a * log(b). As torch, of 16 bits the logarithm is rounded, and then the product.
Value call_log_product(const ScalarDef& def, const Operand& a, const Operand& b, Value (*log)(const Value&));

}  // namespace sluice::ops
