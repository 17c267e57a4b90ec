#pragma once
// Convolutions over 1, 2 or 3 spatial dims, and their two adjoints; the three are each other's gradients.
#include <span>

#include "graph/op_def.h"
#include "graph/value.h"

namespace sluice::ops {

// Empty lists mean all ones (stride, dilation) or zeros (padding); a single entry stands for every spatial dim.
struct ConvOptions {
  Ints stride = {}, padding = {}, dilation = {};
  int64_t groups = 1;
};

// torch.conv1d/2d/3d by rank: x (N, C, spatial...), weight (O, C/groups, kernel...), bias (O,) or undefined.
Value conv(const Value& x, const Value& weight, const Value& bias = {}, const ConvOptions& options = {});
// Gradient of conv with respect to its input, whose full shape is `input_shape`.
Value conv_input_grad(const Value& grad, const Value& weight, const Ints& input_shape, const ConvOptions& options = {});
// Gradient of conv with respect to its weight, whose full shape is `weight_shape`.
Value conv_weight_grad(const Value& grad, const Value& x, const Ints& weight_shape, const ConvOptions& options = {});

struct ConvTransposeOptions {
  Ints stride = {}, padding = {}, output_padding = {}, dilation = {};
  int64_t groups = 1;
};
// torch.conv_transpose1d/2d/3d: x (N, C, spatial...), weight (C, O/groups, kernel...).
Value conv_transpose(const Value& x, const Value& weight, const Value& bias = {},
                     const ConvTransposeOptions& options = {});

const OpDef& conv_op();
std::span<const OpDef* const> convolution_ops();

}  // namespace sluice::ops
