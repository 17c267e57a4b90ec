#pragma once
// Rows of a table by index.
#include <span>

#include "graph/op_def.h"
#include "graph/value.h"

namespace sluice::ops {

// torch.nn.functional.embedding: weight (V, D), index int64 of any shape -> index.shape + (D,). Rows equal to
// padding_idx get no gradient; -1 = none (a negative padding_idx of torch must be made non-negative by the caller).
Value embedding(const Value& weight, const Value& index, int64_t padding_idx = -1);
// The sum of rows weight[index[i]], times scales[i] where there are scales, over the i with bag[i] == b: (bags, D).
// Index, bag and scales are of one length; rows at padding_idx are left out.
Value embedding_bag(const Value& weight, const Value& index, const Value& bag, int64_t bags, int64_t padding_idx = -1,
                    const Value& scales = {});

std::span<const OpDef* const> embedding_ops();

}  // namespace sluice::ops
