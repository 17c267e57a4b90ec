#pragma once
// The end of fused_conv, which changes a convolution's result before it is written: batch norm by given statistics,
// plus a residual, an activation.
#include <memory>
#include <string>

#include "kernels/conv_tail.h"
#include "kernels/kernel.h"
#include "plan/target.h"

namespace sluice::cuda {

// Statements that change "C v", an element of channel c. Sources have kEps; `at`: where the residual's element lies.
std::string tail_text(const plan::KernelQuery& query, const std::string& at);

// Batch norm as one product and one sum, for graphs of cuDNN: two arrays of an element per channel, of what C is, at
// the beginning of the workspace. The bias is in the second.
struct ConvCoefficients {
  explicit ConvCoefficients(const plan::KernelQuery& query);
  static constexpr int64_t scale = 0;  // where they begin
  int64_t shift = 0;
  uint64_t bytes = 0;  // of both; what follows is aligned for every engine
};

// fused_conv on cuDNN: by one of its graphs, or where it has none by its convolution and a pass over what that gives.
// Null where cuDNN is not to be had, or has no such convolution.
std::unique_ptr<PreparedKernel> cudnn_fused_convolution(const plan::KernelQuery& query);

}  // namespace sluice::cuda
