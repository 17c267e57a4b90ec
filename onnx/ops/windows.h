#pragma once
// Windows that step over the spatial dims of (N, C, spatial...), as convolutions and pools name them.
#include "onnx/call.h"

namespace sluice::onnx {

struct Windows {
  Ints kernel, stride, dilation;
  Ints low, high;  // padding, as the file says or as its rule makes it
  Ints sizes;      // of the result
};

// `kernel`: where the attribute is missing. Throws kValue where the attributes do not go together.
Windows windows_of(const Call& call, const Shape& input, const Ints& kernel = {});
// Padding is one number for each dim.
bool symmetric(const Windows& windows);
// The elements of all windows, behind dims of their places: (N, C, places..., kernel...). Beyond the input is `fill`.
Value all_windows(const Value& x, const Windows& windows, double fill);

}  // namespace sluice::onnx
