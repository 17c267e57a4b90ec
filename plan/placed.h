#pragma once
// Which device runs each kernel of a plan, and why that one.
#include <string>
#include <vector>

#include "plan/plan.h"

namespace sluice::plan {

// Options of a plan that begin so name the devices that ops were given to, in order of priority.
inline constexpr const char* kDeviceOrder = "devices.";

struct PlacedKernel {
  int kernel = 0;
  DeviceId device;
  std::string why;  // "named in the program"
};
// In the order of the plan's kernels; those that no actor runs are left out.
std::vector<PlacedKernel> placed_kernels(const Plan& plan);

}  // namespace sluice::plan
