#pragma once
// The kernel of op "sum_parts", made of the device's own add: part by part, so that it has the bits of that.
#include "kernels/kernel.h"

namespace sluice {

// Adds it to the table of a device that has a kernel of add.
void add_sum_parts_kernel(KernelTable& table, DeviceKind kind);

}  // namespace sluice
