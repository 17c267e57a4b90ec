#pragma once
// The relu of kernels that compute it with something else. oneDNN's, as a post-op, makes 0 of NaN.
#include <cstdint>

#include "base/dtype.h"

namespace sluice::cpu {

// n elements, one after the other, of a floating dtype: those below 0 become 0; NaN and -0 stay.
void relu_in_place(DType dtype, void* x, int64_t n, int threads);

}  // namespace sluice::cpu
