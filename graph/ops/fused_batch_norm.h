#pragma once
// Batch norm in training with what goes with it, as one op forward and one backward, which the compiler makes for
// devices that have kernels for them.
#include <span>

#include "graph/op_def.h"

namespace sluice::ops {

// act(batch_norm_train(x, weight, bias) + residual), the batch's mean and variance, and what the running statistics
// become where they are given: kept * running + taken * batch, the variance times `correction`.
namespace fused_batch_norm_input {
enum { kX, kWeight, kBias, kResidual, kRunningMean, kRunningVar, kCount };
}
namespace fused_batch_norm_attr {
enum { kEps, kActivation, kKept, kTaken, kCorrection };
}
const OpDef& fused_batch_norm_op();

// batch_norm_backward of relu_backward(grad, result); with `residual` the latter as well, which is the gradient of what
// was added.
namespace fused_batch_norm_backward_input {
enum { kGrad, kX, kMean, kVar, kResult, kWeight, kCount };
}
const OpDef& fused_batch_norm_backward_op();

std::span<const OpDef* const> fused_batch_norm_ops();

}  // namespace sluice::ops
