#pragma once
// The nodes of the fake machine: which device is attached to which, and where memory of a thread lies.
#include "cuda/fake_driver/fake_driver.h"

namespace fake_cuda {

inline constexpr int kNodeOfHost = 134;  // CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID

CUresult node_of_device(int device, int* node);
int preferred_node();  // of the calling thread

}  // namespace fake_cuda
