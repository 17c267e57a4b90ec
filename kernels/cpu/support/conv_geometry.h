#pragma once
// The attributes of a convolution, and its operands by name. Implementations, and the table of what libraries do wrong,
// speak of convolutions in these words.
#include "base/attr.h"

namespace sluice::cpu {

struct ConvGeometry {
  Ints stride, padding, dilation;
  int64_t groups = 1;
};
enum class ConvRole { kInput, kWeight, kOutput };

}  // namespace sluice::cpu
