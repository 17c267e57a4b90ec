#pragma once
// How the rows of a `fused_rows` op's inputs lie in memory.
#include "kernels/cpu/rows/row_lines.h"

namespace sluice::cpu {

// Immutable. Inputs are named by their number.
class RowInputs {
 public:
  RowInputs(const plan::KernelQuery& q, const RowLines& rows)
      : lines_(rows.lines), nest_(rows.rows(q)), length_(rows.length()) {}

  const RowNest& nest() const { return nest_; }  // the axes around rows
  int64_t rows() const { return nest_.size(); }
  int64_t length() const { return length_; }  // of a row
  // Elements from one of a row to the next.
  int64_t step(int input) const { return lines_[static_cast<size_t>(input)].step; }
  // Every row reads the same.
  bool same(int input) const { return rows_are_same(nest_, input); }
  // The elements of a row follow each other, and so do the rows.
  bool follow(int input) const { return rows_follow(nest_, input, length_) && step(input) == 1; }

 private:
  const std::vector<Line> lines_;
  const RowNest nest_;
  const int64_t length_;
};

}  // namespace sluice::cpu
