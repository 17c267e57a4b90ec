#pragma once
// Weighted sums of a few elements along one axis: what resizing an image does along each of its axes.
#include <span>

#include "graph/op_def.h"
#include "graph/value.h"

namespace sluice::ops {

// y[..., o, ...] = sum over k of weight[o, k] * x[..., index[o, k], ...] along `dim`. index: int64 (out, taps); weight:
// the same shape, of x's floating dtype.
Value weighted_taps(const Value& x, const Value& index, const Value& weight, int64_t dim);

std::span<const OpDef* const> taps_ops();

}  // namespace sluice::ops
