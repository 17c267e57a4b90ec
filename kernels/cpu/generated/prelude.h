#pragma once
// The text that every generated source begins with.
#include "kernels/cpu/math/scalar_steps.h"
#include "kernels/cpu/reduction/fold_run.h"

using namespace sluice::cpu;
using namespace sluice::cpu::scalar;

// A loop reads what it writes at the same place alone.
#define SLUICE_EACH _Pragma("GCC ivdep")

// A reduction of a row, with the bits of the op by itself (kernels/cpu/rows/row_fold.cpp): what is beyond a run is done
// in double.
template <ReductionKind kind>
SLUICE_INLINE float fold_row(const float* x, int64_t n, [[maybe_unused]] int32_t zero) {
  const double total = folded_shares<kind>(
      x, n, [zero](float v) __attribute__((always_inline)) {
        return kind == ReductionKind::kSquares ? rounded(v * v, zero) : v;
      });
  constexpr bool kAdds = kind == ReductionKind::kSum || kind == ReductionKind::kSquares;
  return static_cast<float>(kAdds ? 0.0 + total : total);
}
template <ReductionKind kind>
SLUICE_INLINE float fold_row_to_mean(const float* x, int64_t n, int32_t zero) {
  return static_cast<float>(static_cast<double>(fold_row<kind>(x, n, zero)) / static_cast<double>(n));
}
