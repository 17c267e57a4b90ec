#define SLUICE_SCALAR_TABLE "base/scalar/activation.inc"
#include "kernels/cpu/loops/loops_of_table.h"

namespace sluice::cpu {

std::span<const LoopSet> activation_loops() { return scalar::kSets; }

}  // namespace sluice::cpu
