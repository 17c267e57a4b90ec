#pragma once
// How reductions join elements: many at once, compiled for several instruction sets.
#include <cstdint>

#include "kernels/cpu/math/numeric.h"
#include "kernels/cpu/reduction/fold_run.h"

namespace sluice::cpu {

inline constexpr int64_t kTogether = 8;  // lines read side by side

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
// The folds of float, double, int64, and complex numbers, which have sums and products alone.
template <class T>
Folds<T> folds_of(ReductionKind kind);

}  // namespace sluice::cpu
