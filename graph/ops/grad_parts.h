#pragma once
// Gradients that rules give in part, where to give them whole would be more work: the tape adds such up first.
#include <optional>

#include "graph/op_def.h"
#include "graph/value.h"

namespace sluice {

// A gradient a^T b, of two matrices with as many rows.
struct GradFactors {
  Value a, b;
};

// A gradient of which all is zero but `value`, which begins at `begin` on `axis`, one of `whole` elements.
struct GradPart {
  Value value;
  int axis = 0;
  int64_t begin = 0, whole = 0;
};

namespace ops {

// What op's rule gives for input i, where it is of that kind.
std::optional<GradFactors> grad_factors(const OpDef& op, const GradContext& context, size_t i);
// What op's rule gives for its only input, where it is of that kind.
std::optional<GradPart> grad_part(const OpDef& op, const TensorType& input, const Attrs& attrs, const Value& grad);

}  // namespace ops
}  // namespace sluice
