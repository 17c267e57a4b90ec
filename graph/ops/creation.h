#pragma once
// Tensors from nothing.
#include <span>

#include "graph/op_def.h"

namespace sluice::ops {

Value full(const Shape& shape, double value, DType dtype = DType::kFloat32);
Value zeros(const Shape& shape, DType dtype = DType::kFloat32);
Value ones(const Shape& shape, DType dtype = DType::kFloat32);
Value full_like(const Value& x, double value);
Value zeros_like(const Value& x);
Value ones_like(const Value& x);
// start + i * step for i < n.
Value iota(double start, double step, int64_t n, DType dtype = DType::kInt64);
Value arange(double start, double end, double step = 1, DType dtype = DType::kInt64);
Value linspace(double start, double end, int64_t steps, DType dtype = DType::kFloat32);
Value eye(int64_t n, int64_t m = -1, DType dtype = DType::kFloat32);  // m < 0: square

std::span<const OpDef* const> creation_ops();

}  // namespace sluice::ops
