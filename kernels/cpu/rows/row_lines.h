#pragma once
// How rows lie in the operands of a `fused_rows` op.
#include <vector>

#include "kernels/cpu/rows/row_program.h"
#include "kernels/cpu/strides/strided.h"
#include "plan/target.h"

namespace sluice::cpu {

using RowNest = LoopNestOf<kMostFusedInputs + 1>;

// How an operand's elements lie within a row.
struct Line {
  bool repeats = true;  // one for each row
  bool is_line = true;  // `step` apart
  int64_t step = 1;
  int64_t length = 1;
};

// These tell of an operand of the axes around rows whether all rows read the same, and whether rows of `length`
// elements follow each other.
bool rows_are_same(const RowNest& nest, int operand);
bool rows_follow(const RowNest& nest, int operand, int64_t length);

struct RowLines {
  // Throws Error(kUnsupported) where the body reduces no rows.
  explicit RowLines(const plan::KernelQuery& q);

  Shape whole;                                     // to which the operands broadcast
  int axes = 0;                                    // the last ones, which are a row
  std::vector<bool> states;                        // of inputs: of random steps, which are no elements
  std::vector<Line> lines;                         // of inputs
  int64_t length() const;                          // of a row
  RowNest rows(const plan::KernelQuery& q) const;  // the axes around rows; operands: inputs
  // Rows are read where they are, if their elements follow each other.
  plan::LayoutPreference layouts(size_t outputs) const;
};

// Tells which values of a body are made of which: for those who print sources of it, which keep no elements of a row.
class RowBody {
 public:
  RowBody(const AttrGraph& body, const RowLines& lines);

  const AttrCall* call_of(int value) const;  // null: an input
  bool folds(int value) const;               // a reduction
  bool is_row(int value) const { return is_row_[static_cast<size_t>(value)]; }
  // The values of rows of which results are made, in their order.
  std::vector<int> rows() const;
  // The elements of which these are made, with them, in their order; values of rows are there.
  std::vector<int> elements(const std::vector<int>& values) const;

 private:
  std::vector<bool> needed(const std::vector<int>& values, bool elements) const;

  const AttrGraph& body_;
  std::vector<bool> is_row_;
};

}  // namespace sluice::cpu
