#pragma once
// The arguments of a HostFunction beside its operands.
#include <span>

#include "base/host_dims.h"
#include "kernels/kernel.h"

namespace sluice {

// Its inputs come with the shapes that they have in this call, in memory with the strides of all there is room for;
// outputs are as large as there is room for. Elements beyond the extents of an output's axes become zeros.
struct HostArgs : KernelArgs {
  const HostDims& dims;
  // Per dim. A dim that is taken with the inputs has its length here; the others are as long as there is room for
  // unless the function says otherwise here.
  std::span<int64_t> extents;
};

// REQUIRES: `args` is what a HostFunction was called with.
inline const HostArgs& host_args(const KernelArgs& args) { return static_cast<const HostArgs&>(args); }

}  // namespace sluice
