#pragma once

namespace sluice {

// The best rates of a device, for predicted costs. Per core where it says so.
struct MachineRates {
  double flops_per_core = 100e9;  // fused multiply-adds count two
  double bytes_per_core = 25e9;
  double bytes_total = 40e9;
  double kernel_ns = 300;  // fixed cost of one kernel
};

}  // namespace sluice
