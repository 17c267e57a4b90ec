#pragma once
// Ops that the ranks of a job run together: boxing makes them, lowering turns them into kernels with a group. They only
// move bytes, so that sums keep their one order (ADR 10). Parts of ranks lie along dimension 0.
#include "graph/builder.h"

namespace sluice::compiler {

// all_gather {ranks, meeting}: what each of `ranks`, ascending, gives, one behind the other. all_to_all {ranks,
// meeting}: part r goes to the r-th of them. The nodes of one call have one number of `meeting` and follow one another.
const OpDef& all_gather_op();
const OpDef& all_to_all_op();

bool is_collective(const OpDef& op);
const Ints& ranks_of(const graph::Node& collective);
int64_t meeting_of(const graph::Node& collective);

}  // namespace sluice::compiler
