#pragma once
// How many elements become one: lanes side by side, then in pairs. Kernels that are made at run time have it as text
// (kernels/cpu/generated), so it includes little.
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/math/complex_numbers.h"
#include "kernels/cpu/math/vector_math.h"

namespace sluice::cpu {

enum class ReductionKind : uint8_t { kSum, kMean, kSquares, kProd, kMax, kMin, kAny, kAll };

inline constexpr int64_t kFoldLanes = 64;  // of a run, reduced side by side
inline constexpr int64_t kShortRow = 128;  // rows up to here are short

template <ReductionKind kind, class T>
SLUICE_INLINE T joined(T a, T b) {
  if constexpr (kIsComplex<T>) {  // which have no order
    return kind == ReductionKind::kProd ? product(a, b) : a + b;
  } else {
    using Wrapping = std::conditional_t<std::is_same_v<T, int64_t>, uint64_t, T>;
    switch (kind) {
      case ReductionKind::kSum:
      case ReductionKind::kMean:
      case ReductionKind::kSquares: return static_cast<T>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b));
      case ReductionKind::kProd: return static_cast<T>(static_cast<Wrapping>(a) * static_cast<Wrapping>(b));
      case ReductionKind::kMax:
      case ReductionKind::kAny: return (a != a) | (a > b) ? a : b;  // without branches
      case ReductionKind::kMin:
      case ReductionKind::kAll: return (a != a) | (a < b) ? a : b;
    }
  }
}

// The value with which an element joins the others: its square where squares are summed.
template <ReductionKind kind, class T>
SLUICE_INLINE T share_of(T a) {
  if constexpr (kind == ReductionKind::kSquares)
    return joined<ReductionKind::kProd>(a, a);
  else
    return a;
}

template <ReductionKind kind, class T>
inline constexpr bool kPassesNan =
    (kind == ReductionKind::kMax || kind == ReductionKind::kMin) && std::is_floating_point_v<T>;

// joined() of floats that are no NaN: an instruction, where that is a branch.
template <ReductionKind kind, class T>
SLUICE_INLINE T ordered(T a, T b) {
  return (kind == ReductionKind::kMax ? a > b : a < b) ? a : b;
}

// Lanes in pairs, and what these give, until one is left.
template <ReductionKind kind, int64_t kLanes, bool no_nan = false, class T>
SLUICE_INLINE T folded_lanes(T* lanes) {
  if constexpr (kLanes > 1) {
    for (int64_t i = 0; i < kLanes / 2; ++i) {
      if constexpr (no_nan)
        lanes[i] = ordered<kind>(lanes[i], lanes[kLanes / 2 + i]);
      else
        lanes[i] = joined<kind>(lanes[i], lanes[kLanes / 2 + i]);
    }
    return folded_lanes<kind, kLanes / 2, no_nan>(lanes);
  }
  return lanes[0];
}

// As folded(), of extremes of floats without a NaN, which is looked for in their sums: a comparison that passes it on
// takes twice as long. False: there may be one.
template <ReductionKind kind, class T>
SLUICE_INLINE bool folded_ordered(const T* x, int64_t n, T* result) {
  T lanes[kFoldLanes], sums[kFoldLanes];
  for (int64_t i = 0; i < kFoldLanes; ++i) lanes[i] = sums[i] = x[i];
  const auto join = [&](int64_t i, T v) __attribute__((always_inline)) {
    lanes[i] = ordered<kind>(lanes[i], v);
    sums[i] += v;
  };
  int64_t at = kFoldLanes;
  for (; at + kFoldLanes <= n; at += kFoldLanes)
    for (int64_t i = 0; i < kFoldLanes; ++i) join(i, x[at + i]);
  for (int64_t i = 0; at + i < n; ++i) join(i, x[at + i]);
  int32_t found = 0;
  for (int64_t i = 0; i < kFoldLanes; ++i) found |= sums[i] != sums[i];
  *result = folded_lanes<kind, kFoldLanes, true>(lanes);
  return found == 0;
}

// share(x[0]), ..., share(x[n - 1]) as one: lanes side by side, then in pairs. REQUIRES: 0 < n.
template <ReductionKind kind, class T, class Share>
SLUICE_INLINE T folded_shares(const T* x, int64_t n, Share share) {
  T lanes[kFoldLanes];
  if (n < kFoldLanes) {
    for (int64_t i = 0; i < n; ++i) lanes[i] = share(x[i]);
    for (int64_t used = n; used > 1; used -= used / 2)
      for (int64_t i = 0; i < used / 2; ++i) lanes[i] = joined<kind>(lanes[i], lanes[used - used / 2 + i]);
    return lanes[0];
  }
  if constexpr (kPassesNan<kind, T>)
    if (T result; folded_ordered<kind>(x, n, &result)) return result;
  for (int64_t i = 0; i < kFoldLanes; ++i) lanes[i] = share(x[i]);
  int64_t at = kFoldLanes;
  for (; at + kFoldLanes <= n; at += kFoldLanes)
    for (int64_t i = 0; i < kFoldLanes; ++i) lanes[i] = joined<kind>(lanes[i], share(x[at + i]));
  for (int64_t i = 0; at + i < n; ++i) lanes[i] = joined<kind>(lanes[i], share(x[at + i]));
  return folded_lanes<kind, kFoldLanes>(lanes);
}

template <ReductionKind kind, class T>
SLUICE_INLINE T folded(const T* x, int64_t n) {
  return folded_shares<kind>(
      x, n, [](T v) __attribute__((always_inline)) { return share_of<kind>(v); });
}

}  // namespace sluice::cpu
