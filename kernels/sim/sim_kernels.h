#pragma once
// Kernels of the sim device: those of the cpu, queued on a sim stream.
#include "kernels/kernel.h"

namespace sluice {

// Gives sim the kernel of `op` that the table has for cpu.
void add_sim_kernel(KernelTable& table, const std::string& op);
// The same for an op whose kernel on cpu has been replaced.
void replace_sim_kernel(KernelTable& table, const std::string& op);
// Gives sim every kernel the table has for cpu. REQUIRES: the cpu's kernels have been added.
void add_sim_kernels(KernelTable& table);

}  // namespace sluice
