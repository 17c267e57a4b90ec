#pragma once
// Which operands of a call its gradient rule reads: found by running the rule on symbols, so no op says it twice.
#include <span>
#include <vector>

#include "graph/op_def.h"

namespace sluice {

// Per operand: its content is read. The rule looks at the types alone of all other operands.
struct OperandReads {
  std::vector<bool> inputs, outputs;
};

// Finds the operands that `op.grad`, or differentiating `op.decompose`, reads when it is asked for the gradients that
// `needs` says. Remembers, per thread, what it found for equal calls; good until the thread's next call.
const OperandReads& reads_of_rule(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs,
                                  std::span<const Value> outputs, std::span<const bool> needs);

}  // namespace sluice
