#include "graph/ops/operand.h"

#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"

namespace sluice::ops {

DType Operand::own_dtype() const {
  switch (kind_) {
    case Kind::kTensor: return value_.dtype();
    case Kind::kFloat: return DType::kFloat32;
    case Kind::kInt: return DType::kInt64;
    case Kind::kBool: return DType::kBool;
  }
  return DType::kFloat32;
}

DType Operand::dtype_with(DType other) const {
  switch (kind_) {
    case Kind::kTensor: return promote(value_.dtype(), other);
    case Kind::kFloat: return is_floating(other) ? other : DType::kFloat32;
    case Kind::kInt: return other == DType::kBool ? DType::kInt64 : other;
    case Kind::kBool: return other;
  }
  return other;
}

Value Operand::to(DType dtype) const { return is_number() ? scalar(number_, dtype) : cast(value_, dtype); }

Value scalar(double value, DType dtype) { return full(Shape{}, value, dtype); }

DType result_dtype(const Operand& a, const Operand& b) {
  if (!a.is_number() && !b.is_number()) {
    // As in torch, a tensor of rank 0 raises one with axes only to another kind (bool, integer, floating).
    const DType x = a.value().dtype(), y = b.value().dtype();
    const auto kind = [](DType d) { return d == DType::kBool ? 0 : is_integral(d) ? 1 : 2; };
    const bool a_rank0 = a.value().rank() == 0, b_rank0 = b.value().rank() == 0;
    if (a_rank0 != b_rank0) {
      const DType with_axes = a_rank0 ? y : x, single = a_rank0 ? x : y;
      return kind(single) > kind(with_axes) ? single : with_axes;
    }
    return promote(x, y);
  }
  if (!a.is_number()) return b.dtype_with(a.value().dtype());
  if (!b.is_number()) return a.dtype_with(b.value().dtype());
  return promote(a.own_dtype(), b.own_dtype());
}

std::pair<Value, Value> promoted(const Operand& a, const Operand& b) {
  const DType dtype = result_dtype(a, b);
  return {a.to(dtype), b.to(dtype)};
}

Value to_floating(const Value& x) { return is_floating(x.dtype()) ? x : cast(x, DType::kFloat32); }

}  // namespace sluice::ops
