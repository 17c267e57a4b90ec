#pragma once
#include "kernels/kernel.h"

namespace sluice::cpu {

// This is a part of add_decomposition_kernels(), in a file of its own that takes as long to compile.
void add_matrix_exp_kernels(KernelTable& table);

}  // namespace sluice::cpu
