#pragma once
// requantize: sums of products of 8-bit integers, scaled in fixed point.
#include "kernels/kernel.h"

namespace sluice::cpu {

void add_requantize_kernel(KernelTable& table);

}  // namespace sluice::cpu
