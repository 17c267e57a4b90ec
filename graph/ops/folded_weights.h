#pragma once
// The weight and the bias of a convolution or product that computes what follows or precedes it as well: batch norm by
// given statistics, or a number. What the compiler makes of weights, once for many steps.
#include <span>

#include "graph/op_def.h"

namespace sluice::ops {

// Of a norm that has mean and var, the coefficient of a channel is s = factor * scale / sqrt(var + eps); without it,
// `factor`. All of it is computed in float32 (float64, where an operand or the result is that) and rounded once.

// weight * s. With axis 0, rows are channels. With axis 1, columns are, those of each group of rows behind one another.
namespace fold_weight_input {
enum { kWeight, kVar, kScale, kCount };
}
const OpDef& fold_weight_op();

// Behind the product: (bias - mean) * s + factor * shift. In front of it, where it has the weight: bias + weight *
// (shift - mean * s), summed over what makes an output; factor is 1 then.
namespace fold_bias_input {
enum { kBias, kMean, kVar, kScale, kShift, kWeight, kCount };
}
const OpDef& fold_bias_op();

// Attributes of both.
namespace fold_attr {
enum { kEps, kFactor, kAxis, kGroups, kDType };
}

// One of the two: where its operands are variables that no step changes, lowering keeps its result beside them.
bool folds_weights(const OpDef& op);

std::span<const OpDef* const> folded_weights_ops();

}  // namespace sluice::ops
