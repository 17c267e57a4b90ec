#pragma once
// Kernels of the sim device: those of the cpu, queued on a sim stream.
#include "kernels/kernel.h"

namespace sluice {

// Gives sim every kernel the table has for cpu. REQUIRES: the cpu's kernels have been added.
void add_sim_kernels(KernelTable& table);

}  // namespace sluice
