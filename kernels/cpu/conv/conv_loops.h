#pragma once
// Convolutions by plain loops, for the dtypes that oneDNN does not compute in.
#include <functional>

#include "base/tensor_spec.h"
#include "kernels/cpu/support/conv_geometry.h"
#include "kernels/kernel.h"

namespace sluice::cpu {

// Computes the operand `result` of y = conv(x, w) + bias, or of its adjoints, from the others in the order of the op's
// inputs: conv (x, w, bias?), conv_input_grad (y, w), conv_weight_grad (y, x). Strides are free.
std::function<void(const KernelArgs&)> conv_loops(ConvRole result, const TensorSpec& x, const TensorSpec& w,
                                                  const TensorSpec& y, const TensorSpec* bias,
                                                  const ConvGeometry& geometry, int threads);

}  // namespace sluice::cpu
