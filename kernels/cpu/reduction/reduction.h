#pragma once
// Helpers that the kernels share which walk along axes.
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/cpu/reduction/folds.h"
#include "kernels/cpu/strides/strided.h"
#include "kernels/kernel.h"

namespace sluice::cpu {

struct ReductionAxes {
  enum { kOut, kIn };         // the operands of `kept`
  LoopNest kept;              // in memory order of the input
  LoopNest reduced;           // operand: input; in memory order
  LoopNest reduced_in_order;  // the same in row-major order
};
// From the attributes `dim` and `keepdim` of a reduction.
ReductionAxes reduction_axes(const plan::KernelQuery& query);

// The attribute `dim`; empty: all.
Ints reduced_dims(const NamedAttrs& attrs);

// How all elements of a tensor without gaps become one sum: in parts that threads share, of runs whose sums are floats.
inline constexpr int64_t kChunk = 65536;    // elements of a part
inline constexpr int64_t kMostChunks = 32;  // parts
inline constexpr int64_t kRun = 4096;       // elements of a run of floats; of 16-bit ones it is a tile
inline constexpr int64_t kNarrow = 128;     // so many are one run, whatever they are
inline constexpr int64_t kShort = 32;       // shorter runs are summed one by one

// The parts in which a line of so many elements is reduced, where there are so many lines.
inline int64_t parts_of_lines(int64_t lines, int64_t size) {
  return lines < 16 && size >= 2 * kChunk ? std::clamp<int64_t>(size / kChunk, 1, kMostChunks) : 1;
}
// The reduction by which the op folds rows, where it may be a step of `fused_rows`.
std::optional<ReductionKind> folds_rows(std::string_view op);
std::vector<std::string_view> ops_that_fold_rows();

PrepareFn prepare_arg_extremum(bool maximum);
PrepareFn prepare_cumsum();

}  // namespace sluice::cpu
