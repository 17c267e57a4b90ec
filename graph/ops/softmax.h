#pragma once
// Softmax and its logarithm along one dim.
#include <span>

#include "graph/op_def.h"
#include "graph/value.h"

namespace sluice::ops {

Value softmax(const Value& x, int64_t dim);
Value log_softmax(const Value& x, int64_t dim);

std::span<const OpDef* const> softmax_ops();

}  // namespace sluice::ops
