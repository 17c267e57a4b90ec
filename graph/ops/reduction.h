#pragma once
// Reductions over axes. No `dim` (nullopt or empty) means all of them. As in torch.
#include <optional>
#include <span>

#include "graph/op_def.h"

namespace sluice::ops {

using Dims = std::optional<Ints>;

Value sum(const Value& x, const Dims& dim = {}, bool keepdim = false);  // integers and bool give int64
Value mean(const Value& x, const Dims& dim = {}, bool keepdim = false);
Value prod(const Value& x, const Dims& dim = {}, bool keepdim = false);
Value amax(const Value& x, const Dims& dim = {}, bool keepdim = false);
Value amin(const Value& x, const Dims& dim = {}, bool keepdim = false);
Value any(const Value& x, const Dims& dim = {}, bool keepdim = false);  // bool; of uint8: uint8
Value all(const Value& x, const Dims& dim = {}, bool keepdim = false);
// int64 index of the first extremum; NaN counts as extreme. Without `dim`: of the flattened tensor.
Value argmax(const Value& x, std::optional<int64_t> dim = {}, bool keepdim = false);
Value argmin(const Value& x, std::optional<int64_t> dim = {}, bool keepdim = false);
Value cumsum(const Value& x, int64_t dim);

Value logsumexp(const Value& x, const Dims& dim = {}, bool keepdim = false);
Value var(const Value& x, const Dims& dim = {}, double correction = 1, bool keepdim = false);
Value std(const Value& x, const Dims& dim = {}, double correction = 1, bool keepdim = false);
Value norm(const Value& x, double p = 2, const Dims& dim = {}, bool keepdim = false);
// The gradient of broadcasting: sums `x` down to `shape`, which broadcasts to x's.
Value sum_to(const Value& x, const Shape& shape);

std::span<const OpDef* const> reduction_ops();

}  // namespace sluice::ops
