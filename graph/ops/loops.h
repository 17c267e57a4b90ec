#pragma once
// Loops whose body is a graph: so many turns (scan), as long as a value is true (while_loop), and either as one kernel.
#include <span>
#include <vector>

#include "graph/op_def.h"

namespace sluice::ops {

// Attributes of scan, by position. Its inputs are states, then what is taken apart along its first axis, a row a turn,
// then what every turn reads. The body takes a turn's values of these, and gives the next states, then rows of what is
// stacked.
namespace scan_attr {
enum : int { kBody, kStates, kRows, kLength, kReverse, kSaved, kBackward, kSeeds, kWants, kProducts, kPlain };
}
const OpDef& scan_op();

// Its inputs are states, of which the first says whether there is a turn more, then what every turn reads; the body
// gives the next states.
namespace while_attr {
enum : int { kBody, kStates };
}
const OpDef& while_loop_op();

// Compiling makes the same of either: a body of kernels, by which the length is -1 for a while_loop.
namespace loop_attr {
enum : int { kProgram, kStates, kRows, kLength, kReverse };
}
const OpDef& loop_op();

std::span<const OpDef* const> loops_ops();

}  // namespace sluice::ops
