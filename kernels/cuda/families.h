#pragma once
// The families of generated kernels.
#include "kernels/cuda/generated.h"
#include "kernels/cuda/writer.h"

namespace sluice::cuda {

void add_elementwise_kernels(KernelTable& table);  // those of expressions(), cast, where
void add_fused_kernel(KernelTable& table);         // chains of these
void add_reduction_kernels(KernelTable& table);
void add_fused_rows_kernel(KernelTable& table);  // elementwise steps with reductions among them
void add_movement_kernels(KernelTable& table);   // but copy
void add_creation_kernels(KernelTable& table);
void add_indexing_kernels(KernelTable& table);
void add_random_kernels(KernelTable& table);
void add_softmax_kernels(KernelTable& table);
void add_cross_entropy_kernels(KernelTable& table);
void add_matmul_kernels(KernelTable& table);
void add_convolution_kernels(KernelTable& table);
void add_pooling_kernels(KernelTable& table);
void add_batch_norm_kernels(KernelTable& table);
void add_normalization_kernels(KernelTable& table);
void add_optimizer_update_kernels(KernelTable& table);
void add_attention_kernels(KernelTable& table);
void add_lines_kernels(KernelTable& table);

// "u32 word_at(const i64* state, u32 lane, u64 i)": word i of the Philox stream of a call whose u64 is kSalt.
const char* philox_functions();

}  // namespace sluice::cuda
