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

PrepareFn prepare_arg_extremum(bool maximum);
PrepareFn prepare_cumsum();

}  // namespace sluice::cpu
