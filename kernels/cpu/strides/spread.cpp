#include "kernels/cpu/strides/spread.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/math/vector_math.h"
#include "kernels/cpu/strides/tiles.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kPattern = 64;  // bytes
typedef uint32_t Pattern __attribute__((vector_size(kPattern), aligned(4)));

// `bytes` from `to` on as often as they hold the element. REQUIRES: kPattern <= bytes.
template <class T>
SLUICE_INLINE void repeat(T value, char* to, int64_t bytes) {
  alignas(kPattern) T elements[kPattern / sizeof(T)];
  std::fill_n(elements, kPattern / sizeof(T), value);
  Pattern pattern;
  std::memcpy(&pattern, elements, sizeof pattern);
  int64_t at = 0;
  for (; at + kPattern <= bytes; at += kPattern) std::memcpy(to + at, &pattern, sizeof pattern);
  if (at < bytes) std::memcpy(to + bytes - kPattern, &pattern, sizeof pattern);
}

// Compiled for several instruction sets, which templates cannot be.
#define REPEAT(NAME, T) \
  SLUICE_CLONES void NAME(T value, char* to, int64_t bytes) { repeat(value, to, bytes); }
REPEAT(repeat_each, uint8_t)
REPEAT(repeat_each, uint16_t)
REPEAT(repeat_each, uint32_t)
REPEAT(repeat_each, uint64_t)
REPEAT(repeat_each, Bytes16)
#undef REPEAT

template <class T>
void spread_of(const void* from, int64_t rows, int64_t n, void* to) {
  const T* x = static_cast<const T*>(from);
  T* y = static_cast<T*>(to);
  const int64_t bytes = n * static_cast<int64_t>(sizeof(T));
  for (int64_t r = 0; r < rows; ++r, y += n) {
    if (bytes >= kPattern)
      repeat_each(x[r], reinterpret_cast<char*>(y), bytes);
    else
      std::fill_n(y, n, x[r]);
  }
}

}  // namespace

void spread(int64_t size, const void* from, int64_t rows, int64_t n, void* to) {
  with_element_of_size(static_cast<size_t>(size),
                       [&](auto element) { spread_of<decltype(element)>(from, rows, n, to); });
}

}  // namespace sluice::cpu
