// Products of small matrices and transposes of tiles, for kernels that compute with a row of a tile per vector lane.
// Compiled for each instruction set of the file that includes it; its guard is turned for each.
#if defined(SLUICE_KERNELS_CPU_LANE_PRODUCTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_KERNELS_CPU_LANE_PRODUCTS_INL_H
#undef SLUICE_KERNELS_CPU_LANE_PRODUCTS_INL_H
#else
#define SLUICE_KERNELS_CPU_LANE_PRODUCTS_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/math/numeric.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu {
namespace HWY_NAMESPACE {

// Bytes of a vector, and how many vectors of a row are computed at once: the accumulators fit the registers.
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
constexpr int64_t kVectorBytes = 64;
constexpr int kMostVectors = 4;
#elif HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
constexpr int64_t kVectorBytes = 32;
constexpr int kMostVectors = 2;
#else
constexpr int64_t kVectorBytes = 16;
constexpr int kMostVectors = 2;
#endif
template <class T>
constexpr int64_t kVectorLanes = kVectorBytes / static_cast<int64_t>(sizeof(T));
template <class T>
constexpr int64_t whole_vectors(int64_t n) {
  return (n + kVectorLanes<T> - 1) / kVectorLanes<T> * kVectorLanes<T>;
}

template <class T>
struct Product {
  const T* a;  // (rows, depth), any strides
  int64_t a_row, a_depth;
  const T* b;  // (depth, lanes), dense rows that begin at a vector's alignment
  int64_t b_row;
  T* c;  // (rows, lanes), likewise
  int64_t c_row;
  int64_t rows, depth, lanes;  // lanes: whole vectors
  bool fresh;                  // c = a b, else c = c * decay + a b
  const T* decay = nullptr;    // per lane; null: 1
};

template <class T, int kRows, int kVectors>
HWY_INLINE void multiply_block(const Product<T>& p, const T* a, const T* b, T* c, const T* decay) {
  typedef T V __attribute__((vector_size(kVectorBytes), may_alias));
  constexpr int64_t kLanes = kVectorLanes<T>;
  V sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      sums[i][j] = p.fresh ? V{} : *reinterpret_cast<const V*>(c + i * p.c_row + j * kLanes);
      if (decay) sums[i][j] *= *reinterpret_cast<const V*>(decay + j * kLanes);
    }
  }
  for (int64_t k = 0; k < p.depth; ++k) {
    V row[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) row[j] = *reinterpret_cast<const V*>(b + j * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const T factor = a[i * p.a_row];
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sums[i][j] += factor * row[j];
    }
    a += p.a_depth;
    b += p.b_row;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) *reinterpret_cast<V*>(c + i * p.c_row + j * kLanes) = sums[i][j];
  }
}

template <class T, int kVectors>
HWY_INLINE void multiply_lanes(const Product<T>& p, int64_t lane) {
  constexpr int kRows = kVectors == 1 ? 12 : 6;  // enough sums at once to hide what one takes
  const T *a = p.a, *b = p.b + lane, *decay = p.decay ? p.decay + lane : nullptr;
  T* c = p.c + lane;
  int64_t left = p.rows;
  const auto go = [&](int64_t rows) {
    a += rows * p.a_row;
    c += rows * p.c_row;
    left -= rows;
  };
  while (left >= kRows) multiply_block<T, kRows, kVectors>(p, a, b, c, decay), go(kRows);
  while (left >= 4) multiply_block<T, 4, kVectors>(p, a, b, c, decay), go(4);
  if (left >= 2) multiply_block<T, 2, kVectors>(p, a, b, c, decay), go(2);
  if (left >= 1) multiply_block<T, 1, kVectors>(p, a, b, c, decay);
}

template <class T>
HWY_NOINLINE void multiply(const Product<T>& p) {
  constexpr int64_t kLanes = kVectorLanes<T>;
  for (int64_t lane = 0; lane < p.lanes;) {
    int64_t vectors = std::min<int64_t>((p.lanes - lane) / kLanes, kMostVectors);
    if (p.lanes - lane == 5 * kLanes && kMostVectors == 4) vectors = 3;
    if constexpr (kMostVectors >= 4) {
      if (vectors == 4) multiply_lanes<T, 4>(p, lane);
      if (vectors == 3) multiply_lanes<T, 3>(p, lane);
    }
    if (vectors == 2) multiply_lanes<T, 2>(p, lane);
    if (vectors == 1) multiply_lanes<T, 1>(p, lane);
    lane += vectors * kLanes;
  }
}

// 16-bit floats as float32.
HWY_INLINE void widen(const BFloat16* from, int64_t n, float* to) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) to[i] = load(from[i]);
}
HWY_INLINE void widen(const Float16* from, int64_t n, float* to) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  namespace hn = hwy::HWY_NAMESPACE;
  static_assert(sizeof(hwy::float16_t) == sizeof(Float16));
  const hn::ScalableTag<float> wide;
  const hn::Rebind<hwy::float16_t, decltype(wide)> narrow;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(wide));
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::PromoteTo(wide, hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(from + i))), wide, to + i);
#endif
  for (; i < n; ++i) to[i] = load(from[i]);
}

// to[c * to_row + r] = from[r * from_row + c] * factor.
template <class T>
HWY_NOINLINE void transpose(const T* from, int64_t from_row, int64_t rows, int64_t cols, T* to, int64_t to_row,
                            T factor) {
  typedef T V __attribute__((vector_size(4 * sizeof(T))));
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    int64_t c = 0;
    for (; c + 4 <= cols; c += 4) {
      V x[4];
      for (int i = 0; i < 4; ++i) std::memcpy(&x[i], from + (r + i) * from_row + c, sizeof(V));
      const V a = __builtin_shufflevector(x[0], x[1], 0, 4, 1, 5), b = __builtin_shufflevector(x[2], x[3], 0, 4, 1, 5),
              d = __builtin_shufflevector(x[0], x[1], 2, 6, 3, 7), e = __builtin_shufflevector(x[2], x[3], 2, 6, 3, 7);
      const V y[4] = {
          factor * __builtin_shufflevector(a, b, 0, 1, 4, 5), factor * __builtin_shufflevector(a, b, 2, 3, 6, 7),
          factor * __builtin_shufflevector(d, e, 0, 1, 4, 5), factor * __builtin_shufflevector(d, e, 2, 3, 6, 7)};
      for (int i = 0; i < 4; ++i) std::memcpy(to + (c + i) * to_row + r, &y[i], sizeof(V));
    }
    for (; c < cols; ++c)
      for (int i = 0; i < 4; ++i) to[c * to_row + r + i] = from[(r + i) * from_row + c] * factor;
  }
  for (; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) to[c * to_row + r] = from[r * from_row + c] * factor;
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::cpu
HWY_AFTER_NAMESPACE();
#endif
