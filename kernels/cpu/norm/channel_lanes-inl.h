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
#include <type_traits>

#include "kernels/cpu/math/lane_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu {
namespace HWY_NAMESPACE {

constexpr int64_t kLanes = 16;
constexpr int64_t kTurned = 64;  // rows that are turned by way of lines

// Numbers of kLanes channels, computed like one: as vectors of the processor's width, since compilers keep wider ones
// in memory.
template <class C>
struct Lanes {
  static constexpr int kParts = static_cast<int>(kLanes / kVectorLanes<C>);
  typedef C Part __attribute__((vector_size(kVectorBytes)));
  Part parts[kParts];

  template <class F>
  static HWY_INLINE Lanes of_each(const F& f) {
    Lanes made;
#pragma GCC unroll 8
    for (int i = 0; i < kParts; ++i) made.parts[i] = f(i);
    return made;
  }
  HWY_INLINE Lanes& operator+=(const Lanes& other) { return *this = *this + other; }
  HWY_INLINE Lanes& operator/=(C divisor) {
    return *this = of_each([&](int i) { return parts[i] / divisor; });
  }
  friend HWY_INLINE Lanes operator+(const Lanes& a, const Lanes& b) {
    return of_each([&](int i) { return a.parts[i] + b.parts[i]; });
  }
  friend HWY_INLINE Lanes operator-(const Lanes& a, const Lanes& b) {
    return of_each([&](int i) { return a.parts[i] - b.parts[i]; });
  }
  friend HWY_INLINE Lanes operator*(const Lanes& a, const Lanes& b) {
    return of_each([&](int i) { return a.parts[i] * b.parts[i]; });
  }
  friend HWY_INLINE Lanes operator*(const Lanes& a, C factor) {
    return of_each([&](int i) { return a.parts[i] * factor; });
  }
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
  Lanes<double> wide;
  std::copy_n(reinterpret_cast<const C*>(&x), kLanes, reinterpret_cast<double*>(&wide));
  return wide;
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

// Rows [begin, begin + n) of channels [first, last): of a run of up to `most` rows of an image, turn(offset of the
// first channel's, count, to) writes `count` rows of lanes.
template <class C, class Turn>
HWY_INLINE void for_turned(int64_t positions, int64_t channels, int64_t first, int64_t last, int64_t begin, int64_t n,
                           int64_t most, Lanes<C>* rows, const Turn& turn) {
  if (last - first < kLanes) std::fill(rows, rows + n, Lanes<C>{});
  for (int64_t r = 0; r < n;) {
    const int64_t image = (begin + r) / positions, at = (begin + r) % positions;
    const int64_t count = std::min({positions - at, n - r, most});
    turn((image * channels + first) * positions + at, count, reinterpret_cast<C*>(rows + r));
    r += count;
  }
}
// Turns the values that line(offset, count, to) gives of elements that lie side by side.
template <class C, class Line>
HWY_INLINE void turn_lines(int64_t positions, int64_t channels, int64_t first, int64_t last, int64_t begin, int64_t n,
                           Lanes<C>* rows, const Line& line) {
  alignas(64) C lines[kLanes][kTurned];
  for_turned(positions, channels, first, last, begin, n, kTurned, rows, [&](int64_t offset, int64_t count, C* to) {
    for (int64_t c = 0; c < last - first; ++c) line(offset + c * positions, count, lines[c]);
    transpose(lines[0], kTurned, last - first, count, to, kLanes, C(1));
  });
}
// Turns the elements as they are, or widened.
template <class C, class T>
HWY_INLINE void turn_elements(int64_t positions, int64_t channels, int64_t first, int64_t last, int64_t begin,
                              int64_t n, const T* x, Lanes<C>* rows) {
  if constexpr (std::is_same_v<C, T>)
    for_turned(positions, channels, first, last, begin, n, n, rows, [&](int64_t offset, int64_t count, C* to) {
      transpose(x + offset, positions, last - first, count, to, kLanes, C(1));
    });
  else
    turn_lines(positions, channels, first, last, begin, n, rows, [&](int64_t offset, int64_t count, C* to) {
      for (int64_t i = 0; i < count; ++i) to[i] = load(x[offset + i]);
    });
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::cpu
HWY_AFTER_NAMESPACE();
#endif
