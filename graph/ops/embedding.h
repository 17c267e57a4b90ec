#pragma once
// Rows of a table by index.
#include <span>

#include "graph/op_def.h"
#include "graph/value.h"

namespace sluice::ops {

// torch.nn.functional.embedding: weight (V, D), index int64 of any shape -> index.shape + (D,). Rows equal to
// padding_idx get no gradient; -1 = none (a negative padding_idx of torch must be made non-negative by the caller).
Value embedding(const Value& weight, const Value& index, int64_t padding_idx = -1);

std::span<const OpDef* const> embedding_ops();

}  // namespace sluice::ops
