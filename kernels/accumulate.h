#pragma once
// The kernel of op "accumulate", made of the device's own copy and add.
#include "kernels/kernel.h"

namespace sluice {

// Adds it to the table of a device that has kernels of both.
void add_accumulate_kernel(KernelTable& table, DeviceKind kind);

}  // namespace sluice
