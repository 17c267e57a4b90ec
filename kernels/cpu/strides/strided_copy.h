#pragma once
// Copies between strided memories of one shape and dtype; transposes go through cache-sized blocks.
#include "kernels/cpu/strides/strided.h"

namespace sluice::cpu {

class StridedCopy {
 public:
  // Strides in elements of `element_size` bytes; those of `from` may be zero or negative.
  StridedCopy(const Shape& shape, const Strides& from, const Strides& to, size_t element_size);
  void run(const void* from, void* to, int threads) const;

 private:
  void run_segments(const char* from, char* to, int64_t begin, int64_t end) const;
  void run_rows(const char* from, char* to, int64_t begin, int64_t end) const;
  void run_blocks(const char* from, char* to, int64_t begin, int64_t end) const;

  int64_t size_;
  LoopNest nest_;         // operands: from, to
  bool by_rows_ = false;  // short ones
  bool blocked_ = false;  // from is contiguous along one axis, to along another
  // Blocked: elements of `rows` are neighbours in from, of `columns` in to.
  LoopNest outer_;
  int64_t rows_ = 0, columns_ = 0, column_step_ = 0, row_step_ = 0, strips_ = 0;
};

// Writes one element everywhere.
class StridedFill {
 public:
  StridedFill(const TensorSpec& to, double value);
  void run(void* to, int threads) const;

 private:
  LoopNest nest_;
  int64_t size_;
  alignas(16) char element_[16] = {};
};

}  // namespace sluice::cpu
