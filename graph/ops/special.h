#pragma once
// Special functions of floats, as in torch.special.
#include <cstdint>
#include <optional>
#include <span>

#include "graph/ops/elementwise.h"

namespace sluice::ops {

// A function for each entry of base/scalar/special.inc: erfinv(x), igamma(a, x).
#define UNARY(NAME) Value NAME(const Value& x);
#define BINARY(NAME) Value NAME(const Operand& a, const Operand& b);
#include "base/scalar/names.inc"
//
#include "base/scalar/special.inc"
//
#include "base/scalar/undefine.inc"

// log(x / (1 - x)), of x clamped to [eps, 1 - eps] where eps is given.
Value logit(const Value& x, const std::optional<double>& eps = {});
// The logarithm of the multivariate gamma function of dimension p.
Value multigammaln(const Value& x, int64_t p);

std::span<const TensorFunction> special_functions();

}  // namespace sluice::ops
