#pragma once
// Winograd's method as implementations of convolutions and their gradients.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cpu/conv_epilogue.h"
#include "kernels/cpu/onednn_conv.h"
#include "kernels/kernel.h"

namespace sluice::cpu {

// Those that there are for these operands, which do not depend on the machine: none, unless they are channels-last
// float32 under dense 3x3 windows at stride 1, with multiples of 16 channels. `operands` are those of the convolution
// of which `result` is computed; `epilogue`: null for its gradients.
std::vector<std::string> winograd_implementations(ConvRole result, const ConvOperands& operands,
                                                  const ConvGeometry& geometry, const ConvEpilogue* epilogue);
// Null where there is none of that name.
std::unique_ptr<PreparedKernel> prepare_winograd(std::string_view name, const plan::KernelQuery& query, ConvRole result,
                                                 const ConvOperands& operands, const ConvGeometry& geometry,
                                                 const ConvEpilogue* epilogue, int threads);

}  // namespace sluice::cpu
