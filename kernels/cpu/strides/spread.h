#pragma once
#include <cstdint>

namespace sluice::cpu {

// Each of the `rows` elements at `from`, `n` times, one row behind the other. `size`: bytes of an element.
void spread(int64_t size, const void* from, int64_t rows, int64_t n, void* to);

}  // namespace sluice::cpu
