// Primitives of one operand, the functions of base/scalar/unary.inc, and composites of them.
#include <numbers>

#include "graph/executor.h"
#include "graph/ops/activation.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/complex.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/elementwise/scalar_def.h"

namespace sluice::ops {
namespace {

using std::numbers::inv_sqrtpi, std::numbers::ln10, std::numbers::ln2, std::numbers::pi;

Value reciprocal_or_zero(const Value& x) { return where(eq(x, 0), 0.0, reciprocal(where(eq(x, 0), 1.0, x))); }

// The part of g that is across the direction y of x turns it, the more the nearer x is to 0.
Value direction_slope(const Value& g, const Value& x, const Value& y) {
  const Value along = real_part(mul(conj(y), g));
  return mul(sub(g, mul(y, along)), reciprocal_or_zero(abs(x)));
}

// i x / |x|^2, 0 at 0.
Value angle_slope(const Value& g, const Value& x) {
  return mul(mul(g, reciprocal_or_zero(square(abs(x)))), mul(x, std::complex<double>(0, 1)));
}

// DEFINE(NAME, DOC, LOW, HIGH, GRADIENT): samples lie in [LOW, HIGH), where the function is smooth; the gradient is
// made of `g`, that of the result `y`, and of the operand `x`; that of steps is zeros, as torch's. LINEAR: partial sums
// go through. NOT_HOLOMORPHIC: the rule is that of complex numbers too, as it stands.
#define DEFINE_AS(SBP, HOLOMORPHIC, NAME, DOC, LOW, HIGH, ...)                                    \
  const ScalarDef NAME##_def = unary_def(                                                         \
      #NAME, DOC, SBP, {LOW, HIGH},                                                               \
      [](const GradContext& c) -> std::vector<Value> {                                            \
        [[maybe_unused]] const Value &g = c.grad_outputs[0], &x = c.inputs[0], &y = c.outputs[0]; \
        return {__VA_ARGS__};                                                                     \
      },                                                                                          \
      HOLOMORPHIC);
#define DEFINE(...) DEFINE_AS(elementwise_sbp, true, __VA_ARGS__)
#define LINEAR(...) DEFINE_AS(linear_sbp, true, __VA_ARGS__)
#define NOT_HOLOMORPHIC(...) DEFINE_AS(elementwise_sbp, false, __VA_ARGS__)
// clang-format off

LINEAR(neg, "-x. torch.neg; numbers of any dtype.", -1, 1, neg(g))
NOT_HOLOMORPHIC(abs, "|x|. torch.abs; numbers of any dtype.", 0.2, 1,
                mul(g, is_complex(x.dtype()) ? sgn(x) : sign(x)))
NOT_HOLOMORPHIC(sgn, "-1, 0 or 1, of complex numbers x / |x|. torch.sgn.", 0.2, 1,
                is_complex(x.dtype()) ? direction_slope(g, x, y) : zeros_like(x))
NOT_HOLOMORPHIC(conj, "The complex conjugate; of real numbers themselves. torch.conj_physical.", -1, 1, conjugate(g))
NOT_HOLOMORPHIC(angle, "The argument: of real numbers 0, or pi where they are negative. torch.angle; floating.", 0.2, 1,
                is_complex(x.dtype()) ? angle_slope(g, x) : zeros_like(x))
DEFINE(sign, "-1, 0 or 1. torch.sign.", 0.2, 1, zeros_like(x))
DEFINE(exp, "e to the x. torch.exp; floating.", -1, 1, mul(g, y))
DEFINE(exp2, "2 to the x. torch.exp2; floating.", -1, 1, mul(g, mul(y, ln2)))
DEFINE(expm1, "exp(x) - 1, accurate near 0. torch.expm1; floating.", -1, 1, mul(g, add(y, 1)))
DEFINE(log, "Natural logarithm. torch.log; floating.", 0.5, 2, div(g, x))
DEFINE(log2, "Logarithm to base 2. torch.log2; floating.", 0.5, 2, div(g, mul(x, ln2)))
DEFINE(log10, "Logarithm to base 10. torch.log10; floating.", 0.5, 2, div(g, mul(x, ln10)))
DEFINE(log1p, "log(1 + x), accurate near 0. torch.log1p; floating.", -0.5, 1, div(g, add(x, 1)))
DEFINE(sqrt, "Square root. torch.sqrt; floating.", 0.5, 2, div(g, mul(y, 2)))
DEFINE(rsqrt, "1 / sqrt(x). torch.rsqrt; floating.", 0.5, 2, mul(g, mul(mul(mul(y, y), y), -0.5)))
DEFINE(reciprocal, "1 / x. torch.reciprocal; floating.", 0.5, 2, neg(mul(g, mul(y, y))))
DEFINE(sin, "Sine. torch.sin; floating.", -2, 2, mul(g, cos(x)))
DEFINE(cos, "Cosine. torch.cos; floating.", -2, 2, neg(mul(g, sin(x))))
DEFINE(tan, "Tangent. torch.tan; floating.", -1, 1, mul(g, add(mul(y, y), 1)))
DEFINE(asin, "Inverse sine, NaN beyond -1 and 1. torch.asin; floating.", -0.8, 0.8, mul(g, rsqrt(sub(1, mul(x, x)))))
DEFINE(acos, "Inverse cosine, NaN beyond -1 and 1. torch.acos; floating.", -0.8, 0.8,
       neg(mul(g, rsqrt(sub(1, mul(x, x))))))
DEFINE(atan, "Inverse tangent. torch.atan; floating.", -2, 2, div(g, add(mul(x, x), 1)))
DEFINE(sinh, "Hyperbolic sine. torch.sinh; floating.", -2, 2, mul(g, cosh(x)))
DEFINE(cosh, "Hyperbolic cosine. torch.cosh; floating.", -2, 2, mul(g, sinh(x)))
DEFINE(tanh, "Hyperbolic tangent. torch.tanh; floating.", -2, 2, tanh_backward(g, y))
DEFINE(asinh, "Inverse hyperbolic sine. torch.asinh; floating.", -2, 2, mul(g, rsqrt(add(mul(x, x), 1))))
DEFINE(acosh, "Inverse hyperbolic cosine, NaN below 1. torch.acosh; floating.", 1.5, 3,
       is_complex(x.dtype()) ? mul(g, mul(rsqrt(sub(x, 1)), rsqrt(add(x, 1)))) : mul(g, rsqrt(sub(mul(x, x), 1))))
DEFINE(atanh, "Inverse hyperbolic tangent, NaN beyond -1 and 1. torch.atanh; floating.", -0.8, 0.8,
       div(g, sub(1, mul(x, x))))
DEFINE(erf, "Error function. torch.erf; floating.", -2, 2, mul(g, mul(exp(neg(mul(x, x))), 2 * inv_sqrtpi)))
DEFINE(erfc, "1 - erf(x), accurate for large x. torch.erfc; floating.", -2, 2,
       mul(g, mul(exp(neg(mul(x, x))), -2 * inv_sqrtpi)))
DEFINE(lgamma, "Logarithm of |gamma(x)|. torch.lgamma; floating.", 0.5, 3, mul(g, digamma(x)))
DEFINE(digamma, "Derivative of lgamma. torch.digamma; floating.", 0.5, 3, mul(g, polygamma(1, x)))
DEFINE(sinc, "sin(pi x) / (pi x), 1 at 0. torch.sinc; floating.", 0.2, 2,
       where(eq(x, 0), 0.0, mul(g, div(sub(cos(mul(x, pi)), sinc(x)), x))))
DEFINE(frac, "x - trunc(x). torch.frac; floating.", 0.1, 0.9, g)
LINEAR(deg2rad, "Degrees as radians. torch.deg2rad; floating.", -1, 1, mul(g, pi / 180))
LINEAR(rad2deg, "Radians as degrees. torch.rad2deg; floating.", -1, 1, mul(g, 180 / pi))
DEFINE(floor, "Largest integer <= x. torch.floor.", 0.1, 0.9, zeros_like(x))
DEFINE(ceil, "Smallest integer >= x. torch.ceil.", 0.1, 0.9, zeros_like(x))
DEFINE(round, "Nearest integer, halves to even. torch.round.", 0.6, 1.4, zeros_like(x))
DEFINE(trunc, "Integer part. torch.trunc.", 0.1, 0.9, zeros_like(x))

// clang-format on
#undef LINEAR
#undef NOT_HOLOMORPHIC
#undef DEFINE
#undef DEFINE_AS

#define UNARY(NAME) {&NAME##_def.op, &ops::NAME, nullptr},
#define BINARY(NAME)
#include "base/scalar/names.inc"
const TensorFunction kUnaryFunctions[] = {
#include "base/scalar/unary.inc"
};
#include "base/scalar/undefine.inc"

}  // namespace

#define UNARY(NAME) \
  Value NAME(const Value& x) { return call_scalar(NAME##_def, x); }
#define BINARY(NAME)
#include "base/scalar/names.inc"
//
#include "base/scalar/unary.inc"
//
#include "base/scalar/undefine.inc"

Value square(const Value& x) { return mul(x, x); }

std::span<const TensorFunction> unary_functions() { return kUnaryFunctions; }

}  // namespace sluice::ops
