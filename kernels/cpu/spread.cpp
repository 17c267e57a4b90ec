#include "kernels/cpu/spread.h"

#include "kernels/cpu/tiles.h"
#include "kernels/cpu/vector_math.h"

namespace sluice::cpu {
namespace {

template <class T>
SLUICE_INLINE void spread_of(const void* from, int64_t rows, int64_t n, void* to) {
  const T* x = static_cast<const T*>(from);
  T* y = static_cast<T*>(to);
  for (int64_t r = 0; r < rows; ++r, y += n) {
    const T value = x[r];
    for (int64_t i = 0; i < n; ++i) y[i] = value;
  }
}

// Of several instruction sets, which templates cannot be compiled for.
SLUICE_CLONES void spread_float(const void* from, int64_t rows, int64_t n, void* to) {
  spread_of<uint32_t>(from, rows, n, to);
}

}  // namespace

void spread(int64_t size, const void* from, int64_t rows, int64_t n, void* to) {
  if (size == 4) return spread_float(from, rows, n, to);
  with_element_of_size(static_cast<size_t>(size),
                       [&](auto element) { spread_of<decltype(element)>(from, rows, n, to); });
}

}  // namespace sluice::cpu
