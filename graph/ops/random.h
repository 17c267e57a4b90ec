#pragma once
// Counter-based random numbers: element i of a call is Philox4x32-10 of (seed, step, salt, i), whatever the order,
// the layout or the number of threads. `state` is int64 (2,): (seed, step). Calls of one step differ by `salt`.
#include <span>

#include "graph/op_def.h"

namespace sluice::ops {

Value uniform(const Value& state, const Shape& shape, double low, double high, DType dtype, int64_t salt);
Value normal(const Value& state, const Shape& shape, double mean, double std, DType dtype, int64_t salt);
Value bernoulli(const Value& state, const Shape& shape, double p, DType dtype, int64_t salt);
Value randint(const Value& state, const Shape& shape, int64_t low, int64_t high, DType dtype, int64_t salt);
// x / (1 - p) where kept, else 0; each element is dropped with probability p.
Value dropout(const Value& state, const Value& x, double p, int64_t salt);

std::span<const OpDef* const> random_ops();

}  // namespace sluice::ops
