#pragma once
// The device with its own memory on which tests run their plans: sim:0, or what SLUICE_TEST_DEVICE names. So what holds
// on one asynchronous device is held on the others.
#include <cstdlib>
#include <string>

#include "base/device.h"

namespace sluice::test {

inline DeviceId accelerator() {
  const char* name = std::getenv("SLUICE_TEST_DEVICE");
  return parse_device(name != nullptr && *name != '\0' ? name : "sim:0");
}

// Whether it rounds as the CPU does: what is simulated does, CUDA on the fake driver, too. The runs of a GPU, whose
// libraries add up in orders of their own, are alike among themselves.
inline bool accelerator_rounds_as_cpu() { return std::getenv("SLUICE_TEST_GPU") == nullptr; }

}  // namespace sluice::test
