#pragma once
// attention and attention_backward on cuDNN, for queries that allow results to differ from run to run
// (plan::kDeterministic): cuDNN does not say in which order it adds gradients up.
#include "kernels/cuda/cudnn_plan.h"

namespace sluice::cuda {

// Its plan, for operands that begin at multiples of kCudnnAlignment; nothing where cuDNN has none.
std::optional<CudnnPlan> cudnn_attention_plan(const CudnnMaker& maker, const CudnnTarget& target,
                                              const plan::KernelQuery& query);

// The kernel, with the generated one for operands that begin elsewhere; null where cuDNN is not to be had, or has none.
std::unique_ptr<PreparedKernel> cudnn_attention(const plan::KernelQuery& query,
                                                Generated (*generate)(const plan::KernelQuery& query));

}  // namespace sluice::cuda
