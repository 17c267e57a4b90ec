// Channels of a contiguous activation as lanes of vectors: what is summed channel by channel, in the order of rows, is
// then summed for kLanes channels at once, with the bits of a channels-last activation.
// Compiled for each instruction set of the file that includes it; its guard is turned for each.
#if defined(SLUICE_KERNELS_CPU_CHANNEL_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_KERNELS_CPU_CHANNEL_LANES_INL_H
#undef SLUICE_KERNELS_CPU_CHANNEL_LANES_INL_H
#else
#define SLUICE_KERNELS_CPU_CHANNEL_LANES_INL_H
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/lane_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu {
namespace HWY_NAMESPACE {

constexpr int64_t kLanes = 16;
constexpr int64_t kTurned = 64;  // rows that are turned at once

// Numbers of kLanes channels, computed like one.
template <class C>
struct Lanes {
  typedef C Vector __attribute__((vector_size(kLanes * sizeof(C))));
  Vector v;

  HWY_INLINE Lanes& operator+=(const Lanes& other) { return v += other.v, *this; }
  HWY_INLINE Lanes& operator/=(C divisor) { return v /= divisor, *this; }
  friend HWY_INLINE Lanes operator+(const Lanes& a, const Lanes& b) { return {a.v + b.v}; }
  friend HWY_INLINE Lanes operator-(const Lanes& a, const Lanes& b) { return {a.v - b.v}; }
  friend HWY_INLINE Lanes operator*(const Lanes& a, const Lanes& b) { return {a.v * b.v}; }
  friend HWY_INLINE Lanes operator*(const Lanes& a, C factor) { return {a.v * factor}; }
};
using cpu::load;
template <class C>
HWY_INLINE const Lanes<C>& load(const Lanes<C>& lanes) {
  return lanes;
}

template <class C>
struct NumberOf {
  using Scalar = C;
  using InDouble = double;
};
template <class C>
struct NumberOf<Lanes<C>> {
  using Scalar = C;
  using InDouble = Lanes<double>;
};
template <class C>
using Scalar = typename NumberOf<C>::Scalar;
template <class C>
using InDouble = typename NumberOf<C>::InDouble;

template <class C>
HWY_INLINE double in_double(C x) {
  return static_cast<double>(x);
}
template <class C>
HWY_INLINE Lanes<double> in_double(const Lanes<C>& x) {
  return {__builtin_convertvector(x.v, Lanes<double>::Vector)};
}

// Channels [first, last) from and to a row of all channels. REQUIRES: these are at most kLanes.
template <class C>
HWY_INLINE Lanes<C> get_lanes(const C* row, int64_t first, int64_t last) {
  Lanes<C> lanes = {};
  std::copy(row + first, row + last, reinterpret_cast<C*>(&lanes));
  return lanes;
}
template <class C>
HWY_INLINE void put_lanes(const Lanes<C>& lanes, int64_t first, int64_t last, C* row) {
  std::copy_n(reinterpret_cast<const C*>(&lanes), last - first, row + first);
}

// Rows [begin, begin + n) of channels [first, last). line(offset, count, to) widens elements that lie side by side.
template <class C, class Line>
HWY_INLINE void turn_lines(int64_t positions, int64_t channels, int64_t first, int64_t last, int64_t begin, int64_t n,
                           Lanes<C>* rows, const Line& line) {
  alignas(64) C lines[kLanes][kTurned];
  if (last - first < kLanes) std::fill(rows, rows + n, Lanes<C>{});
  for (int64_t r = 0; r < n;) {
    const int64_t image = (begin + r) / positions, at = (begin + r) % positions;
    const int64_t count = std::min({positions - at, n - r, kTurned});
    for (int64_t c = first; c < last; ++c) line((image * channels + c) * positions + at, count, lines[c - first]);
    transpose(lines[0], kTurned, last - first, count, reinterpret_cast<C*>(rows + r), kLanes, C(1));
    r += count;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::cpu
HWY_AFTER_NAMESPACE();
#endif
