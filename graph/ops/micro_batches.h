#pragma once
// From what a step computes once per micro-batch to what it computes once. The nodes that read these ops' outputs have
// `every` equal to `n`, the micro-batches of a step.
#include <span>

#include "graph/op_def.h"

namespace sluice::ops {

// The sum of the step's n values, added up in order.
Value accumulate(const Value& x, int64_t n);
// The step's n values, one after another along axis 0; of scalars a vector.
Value pack(const Value& x, int64_t n);

// Throws where a call wants more than one value: who runs it now has no other.
void check_one_value(const OpDef& op, const Attrs& attrs);

// For the compiler, which acts on these ops by identity.
const OpDef& accumulate_op();
const OpDef& pack_op();
std::span<const OpDef* const> micro_batches_ops();

}  // namespace sluice::ops
