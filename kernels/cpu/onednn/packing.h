#pragma once
// Inputs that others keep as a primitive of oneDNN wants them (docs/adr/0021-packed-copies-follow-their-variables.md).
#include <optional>

#include "kernels/cpu/onednn/onednn.h"
#include "kernels/kernel.h"

namespace sluice::cpu {

// How input `number` of a kernel, which lies as `given`, is packed as `wanted`; none where both are the same, or where
// no words say the order of `wanted`.
std::optional<Packing> packing(int number, const onednn::Desc& given, const onednn::Desc& wanted, int threads);

}  // namespace sluice::cpu
