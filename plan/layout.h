#pragma once
// Translates a kernel's wish for a layout into the strides of an operand.
#include "base/tensor_spec.h"
#include "plan/target.h"

namespace sluice::plan {

// The same tensor laid so; contiguous where it is kAny, or channels-last of a tensor without spatial dims.
TensorSpec with_layout(const TensorSpec& spec, Layout layout);
// Whether it lies so already.
bool fits(Layout layout, const TensorSpec& spec);

}  // namespace sluice::plan
