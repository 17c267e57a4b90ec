#pragma once
// What the kernels that walk along axes share.
#include "kernels/cpu/strided.h"
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

// How all elements of a tensor without gaps become one sum: in parts that threads share, of runs whose sums are floats.
inline constexpr int64_t kChunk = 65536;    // elements of a part
inline constexpr int64_t kMostChunks = 32;  // parts
inline constexpr int64_t kRun = 4096;       // elements of a run of floats; of 16-bit ones it is a tile
inline constexpr int64_t kNarrow = 128;     // so many are one run, whatever they are
inline constexpr int64_t kShort = 32;       // shorter runs are summed one by one

PrepareFn prepare_arg_extremum(bool maximum);
PrepareFn prepare_cumsum();

}  // namespace sluice::cpu
