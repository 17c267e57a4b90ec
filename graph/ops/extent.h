#pragma once
// Sizes computed from attributes, which may be any integers of 64 bits: a sum of a few products of two is exact in 128.
#include <cstdint>
#include <limits>

#include "base/error.h"

namespace sluice::ops {

using Wide = __int128;

// `size` as a dim; throws kValue when it is none.
inline int64_t checked_dim(Wide size, const char* where) {
  SLUICE_CHECK(size >= 0 && size <= std::numeric_limits<int64_t>::max(),
               "{}: size out of range: {}; a dim must fit 63 bits", where,
               size < 0 ? "below 0" : "more than 9223372036854775807");
  return static_cast<int64_t>(size);
}

}  // namespace sluice::ops
