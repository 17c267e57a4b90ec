#pragma once
// Copies between host tensors of equal dtype and shape and any strides.
#include "base/tensor_spec.h"

namespace sluice {

void strided_copy(void* to, const TensorSpec& to_spec, const void* from, const TensorSpec& from_spec);

}  // namespace sluice
