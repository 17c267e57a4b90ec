#pragma once
// The kernel of op "copy": one input, one output of equal dtype and shape, any strides. On a sim device's copy_in and
// copy_out streams it moves data between the host's and the device's memory.
#include "kernels/kernel.h"

namespace sluice {

KernelDef copy_kernel();

}  // namespace sluice
