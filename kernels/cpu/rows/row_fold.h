#pragma once
// Rows of elements as one element each, with the bits that a reduction by itself gives
// (kernels/cpu/reduction/reduction.cpp).
#include <memory>

#include "base/dtype.h"
#include "kernels/cpu/reduction/folds.h"
#include "kernels/cpu/reduction/reduction.h"

namespace sluice::cpu {

// A row that is folded piece by piece: first in parts, which begin where a reduction's do, and those in runs.
struct LongRow {
  int64_t size = 0, parts = 1;
  int64_t first(int64_t part) const { return size * part / parts; }
  int64_t runs_of(int64_t part) const { return (first(part + 1) - first(part) + kRun - 1) / kRun; }
};

// Immutable. `dtype` is that of the elements and of what they become.
class RowFold {
 public:
  virtual ~RowFold() = default;
  // Rows of n elements, one behind the other. REQUIRES: n <= kRun.
  virtual void rows(const void* x, int64_t n, int64_t rows, void* out) const = 0;
  // A run: n elements from `at` on, which a part begins `before` elements ahead of. Becomes entries of the part.
  virtual void run(const void* x, int64_t n, int64_t before, void* entries) const = 0;
  // Makes the results from all entries. Those of a part are entry_bytes() behind the last one's.
  virtual void finish(const LongRow& row, const void* entries, void* out) const = 0;

  static int64_t entry_bytes(const LongRow& row);  // of a part
};
// The folds of floating dtypes. `squares`: of the elements' squares. REQUIRES: that is of a sum or a mean of float32 or
// float64.
std::unique_ptr<const RowFold> make_row_fold(ReductionKind kind, DType dtype, bool squares = false);

}  // namespace sluice::cpu
