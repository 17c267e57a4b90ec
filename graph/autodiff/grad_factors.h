#pragma once
// Gradients that are products of two matrices, as their factors: where calls share an input, as the steps of a
// recurrent net share their weights, the tape adds up such gradients as one product of all their rows.
#include <optional>
#include <span>

#include "graph/autodiff/tape.h"
#include "graph/op_def.h"

namespace sluice {

// A gradient a^T b, of two matrices with as many rows.
struct GradFactors {
  Value a, b;
};

namespace ops {
// The factors that op's rule gives for input i, where it is a product of two.
std::optional<GradFactors> grad_factors(const OpDef& op, const GradContext& context, size_t i);
}  // namespace ops

// The same of a recorded call; nothing of other nodes. `node` need not be asked for that gradient then.
std::optional<GradFactors> factors_of(GradNode& node, std::span<const Value> grad_outputs, size_t i);

}  // namespace sluice
