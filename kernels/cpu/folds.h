#pragma once
// How reductions join elements: many at once, compiled for several instruction sets.
#include <complex>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/numeric.h"
#include "kernels/cpu/vector_math.h"

namespace sluice::cpu {

enum class ReductionKind : uint8_t { kSum, kMean, kSquares, kProd, kMax, kMin, kAny, kAll };

inline constexpr int64_t kFoldLanes = 64;  // of a run, reduced side by side
inline constexpr int64_t kShortRow = 128;  // rows up to here are short
inline constexpr int64_t kTogether = 8;    // lines read side by side

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

// What is joined of an element.
template <ReductionKind kind, class T>
SLUICE_INLINE T share_of(T a) {
  if constexpr (kind == ReductionKind::kSquares)
    return joined<ReductionKind::kProd>(a, a);
  else
    return a;
}

// In all of them x are elements, whose shares are joined, and what they give are shares.
template <class T>
struct Folds {
  // x[0], ..., x[n - 1] as one.
  T (*run)(const T* x, int64_t n);
  // Each of the rows of n elements, `step` apart, as one.
  void (*rows)(const T* x, int64_t step, int64_t n, T* out, int64_t rows);
  // into[i] joined with element i of kTogether lines, `step` apart.
  void (*lines)(T* into, const T* x, int64_t step, int64_t n);
  // into[i] joined with element i of each of the lines, which follow each other.
  void (*stack)(T* into, const T* x, int64_t n, int64_t lines);
};
// Of float, double, int64, and complex numbers, whose sums and products alone are there.
template <class T>
Folds<T> folds_of(ReductionKind kind);

}  // namespace sluice::cpu
