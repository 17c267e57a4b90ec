#pragma once
// A convolution with what often follows it, as one op that the compiler makes for devices that have a kernel for it.
#include <span>

#include "graph/op_def.h"

namespace sluice::ops {

// act(batch_norm_infer(conv(x, weight, bias), mean, var, scale, shift) + residual); what is absent is left out.
namespace fused_conv_input {
enum { kX, kWeight, kBias, kMean, kVar, kScale, kShift, kResidual, kCount };
}
// Its attributes: these two, then conv's.
namespace fused_conv_attr {
enum { kEps, kActivation, kConv };
}
const OpDef& fused_conv_op();

std::span<const OpDef* const> fused_convolution_ops();

}  // namespace sluice::ops
