#pragma once
// conv, conv_input_grad and conv_weight_grad on cuDNN.
#include "kernels/cuda/cudnn_plan.h"

namespace sluice::cuda {

// Its plans; nothing where cuDNN has none.
std::optional<CudnnPlans> cudnn_convolution_plans(const CudnnMaker& maker, const CudnnTarget& target,
                                                  const plan::KernelQuery& query);

// The plans that it has, at most 8, by their names for plan::kImplementation, the usual one first. Empty where it has
// none.
std::vector<std::string> cudnn_convolution_names(const plan::KernelQuery& query);

// The kernel; null where cuDNN is not to be had, or has none.
std::unique_ptr<PreparedKernel> cudnn_convolution(const plan::KernelQuery& query);

}  // namespace sluice::cuda
