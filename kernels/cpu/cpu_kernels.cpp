#include "kernels/cpu/cpu_kernels.h"

#include "kernels/accumulate.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/images.h"
#include "kernels/cpu/recurrent.h"
#include "kernels/cpu/taps.h"
#include "kernels/kernel.h"
#include "kernels/libraries.h"

namespace sluice {

void add_cpu_kernels(KernelTable& table) {
  limit_instruction_sets();
  cpu::add_elementwise_kernels(table);
  cpu::add_fused_kernel(table);
  cpu::add_fused_reduction_kernel(table);
  cpu::add_reduction_kernels(table);
  cpu::add_movement_kernels(table);
  cpu::add_branch_kernels(table);
  cpu::add_loop_kernel(table);
  cpu::add_indexing_kernels(table);
  cpu::add_line_kernels(table);
  cpu::add_fourier_kernels(table);
  cpu::add_creation_kernels(table);
  cpu::add_random_kernels(table);
  cpu::add_host_kernels(table);
  cpu::add_image_kernels(table);
  cpu::add_matmul_kernels(table);
  cpu::add_linalg_kernels(table);
  cpu::add_ldl_kernels(table);
  cpu::add_flat_index_kernels(table);
  cpu::add_decomposition_kernels(table);
  cpu::add_eigenvalue_kernels(table);
  cpu::add_convolution_kernels(table);
  cpu::add_pooling_kernels(table);
  cpu::add_grid_sample_kernel(table);
  cpu::add_batch_norm_kernels(table);
  cpu::add_normalization_kernels(table);
  cpu::add_softmax_kernels(table);
  cpu::add_attention_kernels(table);
  cpu::add_cross_entropy_kernels(table);
  cpu::add_embedding_kernels(table);
  cpu::add_optimizer_update_kernels(table);
  cpu::add_multi_update_kernel(table);
  cpu::add_recurrent_kernels(table);
  cpu::add_taps_kernels(table);
  add_accumulate_kernel(table, DeviceKind::kCpu);
}

}  // namespace sluice
