#pragma once
// Methods of our own, beside oneDNN's, as implementations of convolutions and their gradients.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cpu/conv/conv_epilogue.h"
#include "kernels/cpu/onednn/onednn_conv.h"
#include "kernels/kernel.h"

namespace sluice::cpu {

// Those that there are for these operands, which do not depend on the machine: none, unless they are float32 that lies
// channels-last, under dense windows in one group. For results of multiples of 16 channels, "panels", which multiplies
// rows of windows where they lie; for 3x3 windows at stride 1 over such multiples, "winograd 2x2" and "winograd 4x4",
// also for gradients. `operands` are those of the convolution of which `result` is computed; `epilogue`: null for
// gradients.
std::vector<std::string> conv_methods(ConvRole result, const ConvOperands& operands, const ConvGeometry& geometry,
                                      const ConvEpilogue* epilogue);
// Null where there is none of that name.
std::unique_ptr<PreparedKernel> prepare_conv_method(std::string_view name, const plan::KernelQuery& query,
                                                    ConvRole result, const ConvOperands& operands,
                                                    const ConvGeometry& geometry, const ConvEpilogue* epilogue,
                                                    int threads);

}  // namespace sluice::cpu
