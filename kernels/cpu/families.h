#pragma once
// One function per op family; add_cpu_kernels() calls them all.
namespace sluice {

class KernelTable;

}  // namespace sluice

namespace sluice::cpu {

void add_elementwise_kernels(KernelTable& table);     // unary, binary, activation, comparison, where, cast
void add_fused_kernel(KernelTable& table);            // chains of elementwise ops
void add_fused_reduction_kernel(KernelTable& table);  // and their sums
void add_branch_kernels(KernelTable& table);          // case, esac
void add_loop_kernel(KernelTable& table);
void add_reduction_kernels(KernelTable& table);
void add_movement_kernels(KernelTable& table);
void add_indexing_kernels(KernelTable& table);
void add_line_kernels(KernelTable& table);
void add_fourier_kernels(KernelTable& table);
void add_creation_kernels(KernelTable& table);
void add_random_kernels(KernelTable& table);
void add_host_kernels(KernelTable& table);
void add_matmul_kernels(KernelTable& table);
void add_linalg_kernels(KernelTable& table);         // LU, Cholesky, systems
void add_flat_index_kernels(KernelTable& table);     // several indices as one
void add_ldl_kernels(KernelTable& table);            // of symmetric matrices that need not be positive
void add_decomposition_kernels(KernelTable& table);  // QR, singular values, exponential
void add_eigenvalue_kernels(KernelTable& table);     // of symmetric and of general matrices
void add_convolution_kernels(KernelTable& table);
void add_pooling_kernels(KernelTable& table);
void add_grid_sample_kernel(KernelTable& table);
void add_batch_norm_kernels(KernelTable& table);
void add_normalization_kernels(KernelTable& table);
void add_softmax_kernels(KernelTable& table);
void add_attention_kernels(KernelTable& table);
void add_cross_entropy_kernels(KernelTable& table);
void add_embedding_kernels(KernelTable& table);
void add_optimizer_update_kernels(KernelTable& table);
void add_multi_update_kernel(KernelTable& table);

}  // namespace sluice::cpu
