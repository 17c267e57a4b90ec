#pragma once
// float16 to float and back, many at once, by the processor's own instructions where it has them: to the nearest, ties
// to even; NaN stays NaN.
#include <cstdint>

#include "base/dtype.h"

namespace sluice::cpu {

void load_float16(const Float16* from, float* to, int64_t n);
void store_float16(const float* from, Float16* to, int64_t n);

}  // namespace sluice::cpu
