#pragma once
// Tensors of 8-bit integers that stand for floats, x = (q - zero_point) * scale, and convolutions and products of them.
#include <span>

#include "graph/op_def.h"

namespace sluice::ops {

// The type of the integers; a scale or zero point of one element stands for the whole tensor, of several for a slice of
// `axis` each. An undefined zero point is 0.
struct QuantizeOptions {
  DType dtype = DType::kUInt8;
  int64_t axis = 0;
};
// round(x / scale) + zero_point, halves to even, brought into the range of dtype.
Value quantize(const Value& x, const Value& scale, const Value& zero_point = {}, const QuantizeOptions& options = {});
Value dequantize(const Value& q, const Value& scale, const Value& zero_point = {}, int64_t axis = 0);

// Scale and zero point, (1,) each, with which uint8 holds all of x, and 0 exactly: of x as it is in this call.
struct IntegerRange {
  Value scale, zero_point;
};
IntegerRange range_of(const Value& x);

// Inputs of int8_conv and int8_linear, which compute activation(x w * scale + shift + residual * residual_scale), where
// w is the convolution or the product. int8_linear has no residual.
namespace int8_conv_input {
enum { kX, kWeight, kScale, kShift, kZero, kResidual, kResidualScale, kCount };
}
// Their attributes: these two; then conv's.
namespace int8_attr {
enum { kActivation, kDtype, kConv };
}
const OpDef& quantize_op();
const OpDef& dequantize_op();
const OpDef& int8_conv_op();
const OpDef& int8_linear_op();

std::span<const OpDef* const> quantization_ops();

// The same in fixed point, without any float (fixed_point.cpp). Inputs of requantize, and of int8_conv_fixed and
// int8_linear_fixed; what their attributes begin with.
namespace requantize_input {
enum { kX, kMultiplier, kExponent, kCount };
}
namespace int8_fixed_input {
enum { kX, kWeight, kMultiplier, kExponent, kBias, kCount };
}
namespace int8_fixed_attr {
enum { kDtype, kXZero, kYZero, kLow, kHigh, kConv };
}
std::span<const OpDef* const> fixed_point_ops();

}  // namespace sluice::ops
