#pragma once
// The predicted work of one call or kernel.

namespace sluice {

struct Cost {
  double flops = 0;  // a fused multiply-add counts two
  double bytes = 0;  // that must be read or written
};

}  // namespace sluice
