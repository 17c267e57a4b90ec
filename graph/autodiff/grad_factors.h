#pragma once
// Gradients that are products of two matrices, as their factors: where calls share an input, as the steps of a
// recurrent net share their weights, the tape adds up such gradients as one product of all their rows.
#include <optional>
#include <span>

#include "graph/ops/grad_parts.h"
#include "graph/tape.h"

namespace sluice {

// The factors that the rule of a recorded call gives for input i, if any; nothing of other nodes. `node` need not
// be asked for that gradient then.
std::optional<GradFactors> factors_of(GradNode& node, std::span<const Value> grad_outputs, size_t i);

}  // namespace sluice
