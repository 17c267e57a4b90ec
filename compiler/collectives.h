#pragma once
// Ops that the ranks of a job run together: boxing makes them, lowering turns them into kernels with a group. They only
// move bytes, so that sums keep their one order (ADR 10). Parts of ranks lie along dimension 0.
#include "graph/builder.h"

namespace sluice::compiler {

// all_gather {ranks, meeting}: what each of `ranks`, ascending, gives, one behind the other. all_to_all {ranks,
// meeting}: part r goes to the r-th of them. The nodes of one call have one number of `meeting` and follow one another.
const OpDef& all_gather_op();
const OpDef& all_to_all_op();
// sum_parts {parts}: of x, which is so many parts one behind the other, the sum of part 0 and part 1, then of part 2
// and so on: what a node for each addition gives, to the bit. One node, however many ranks there are.
const OpDef& sum_parts_op();

bool is_collective(const OpDef& op);
const Ints& ranks_of(const graph::Node& collective);
int64_t meeting_of(const graph::Node& collective);

}  // namespace sluice::compiler
