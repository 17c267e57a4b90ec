#pragma once
// What a HostFunction is given beside its operands.
#include <span>

#include "base/host_dims.h"
#include "kernels/kernel.h"

namespace sluice {

// Its inputs come with the shapes that they have in this call, in memory with the strides of all there is room for;
// outputs are as large as there is room for. What it leaves beyond the extents of an output's axes becomes zeros.
struct HostArgs : KernelArgs {
  const HostDims& dims;
  // Per dim. Of those taken with the inputs, how long they are; the others are as long as there is room for unless the
  // function says otherwise here.
  std::span<int64_t> extents;
};

// REQUIRES: `args` is what a HostFunction was called with.
inline const HostArgs& host_args(const KernelArgs& args) { return static_cast<const HostArgs&>(args); }

}  // namespace sluice
