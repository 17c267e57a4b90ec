// Special functions: the entries of base/scalar/special.inc, and composites of them.
#include "graph/ops/special.h"

#include <cmath>
#include <numbers>

#include "graph/executor.h"
#include "graph/ops/activation.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise/scalar_def.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"

namespace sluice::ops {
namespace {

using std::numbers::inv_sqrtpi, std::numbers::pi, std::numbers::sqrt2;

const double kSqrt2Pi = std::sqrt(2 * pi);

// f / x, and at 0 what it tends to there.
Value over(const Value& f, const Value& x, double at_zero) {
  const Value zero = eq(x, 0);
  return where(zero, at_zero, div(f, where(zero, 1.0, x)));
}

// The density of gamma's distribution: the slope of igamma in its second operand.
// NaN below 0, where the functions are, too; a power of 0 would hide it.
Value gamma_density(const Value& a, const Value& x) {
  return exp(sub(sub(xlogy(sub(a, 1), x), where(lt(x, 0), NAN, x)), lgamma(a)));
}

Value refused(const char* name, const char* which) {
  fail(ErrorKind::kUnsupported, "{}: the derivative for '{}: {}' is not implemented, as in torch; detach() it", name,
       name, which);
}

// The density over the function y is the logarithm of. Each form is used where it is exact, and finite.
Value log_ndtr_slope(const Value& x, const Value& y) {
  const Value left = lt(x, 1), scaled = erfcx(mul(where(left, x, 0.0), -1 / sqrt2));
  return where(left, div(std::sqrt(2 / pi), scaled), mul(exp(sub(mul(mul(x, x), -0.5), y)), 1 / kSqrt2Pi));
}

struct LogProductDef : ScalarDef {};
Value call_scalar(const LogProductDef& def, const Operand& a, const Operand& b) {
  return call_log_product(def, a, b, &log1p);
}

// DEFINE1(NAME, DOC, LOW, HIGH, GRADIENT) and DEFINE2 as DEFINE in unary.cpp and binary.cpp.
#define DEFINE1(NAME, DOC, LOW, HIGH, ...)                                                                 \
  const ScalarDef NAME##_def =                                                                             \
      unary_def(#NAME, DOC, elementwise_sbp, {LOW, HIGH}, [](const GradContext& c) -> std::vector<Value> { \
        [[maybe_unused]] const Value &g = c.grad_outputs[0], &x = c.inputs[0], &y = c.outputs[0];          \
        return {__VA_ARGS__};                                                                              \
      });
#define DEFINE2_AS(TYPE, NAME, DOC, A_LOW, A_HIGH, B_LOW, B_HIGH, OF_A, ...)                                         \
  const TYPE NAME##_def{                                                                                             \
      binary_def(#NAME, DOC, elementwise_sbp, {A_LOW, A_HIGH}, {B_LOW, B_HIGH}, [](const GradContext& c) -> Values { \
        [[maybe_unused]] const Value &g = c.grad_outputs[0], &a = c.inputs[0], &b = c.inputs[1];                     \
        return {c.needs[0] ? OF_A : Value(), c.needs[1] ? __VA_ARGS__ : Value()};                                    \
      })};
#define DEFINE2(...) DEFINE2_AS(ScalarDef, __VA_ARGS__)
// clang-format off

DEFINE1(erfinv, "Inverse of erf. torch.erfinv; floating.", -0.8, 0.8,
        mul(mul(g, 0.5 / inv_sqrtpi), exp(square(erfinv(x)))))
DEFINE1(erfcx, "exp(x^2) erfc(x). torch.special.erfcx; floating.", -1, 2,
        mul(g, sub(mul(mul(x, y), 2), 2 * inv_sqrtpi)))
DEFINE1(ndtr, "The normal distribution's function. torch.special.ndtr; floating.", -2, 2,
        mul(g, mul(exp(mul(mul(x, x), -0.5)), 1 / kSqrt2Pi)))
DEFINE1(ndtri, "Inverse of ndtr. torch.special.ndtri; floating.", 0.1, 0.9,
        mul(g, mul(exp(mul(mul(y, y), 0.5)), kSqrt2Pi)))
DEFINE1(log_ndtr, "Logarithm of ndtr. torch.special.log_ndtr; floating.", -3, 2,
        mul(g, log_ndtr_slope(x, y)))
DEFINE1(entr, "-x log(x), 0 at 0, -inf below. torch.special.entr; floating.", 0.2, 2, neg(mul(g, add(log(x), 1))))
DEFINE1(i0, "Modified Bessel function of the first kind, order 0. torch.special.i0; floating.", -3, 3, mul(g, i1(x)))
DEFINE1(i0e, "exp(-|x|) i0(x). torch.special.i0e; floating.", 0.2, 3, mul(g, sub(i1e(x), mul(sign(x), y))))
DEFINE1(i1, "Modified Bessel function of the first kind, order 1. torch.special.i1; floating.", 0.2, 3,
        mul(g, sub(i0(x), over(y, x, 0.5))))
DEFINE1(i1e, "exp(-|x|) i1(x). torch.special.i1e; floating.", 0.2, 3,
        mul(g, sub(sub(i0e(x), mul(sign(x), y)), over(y, x, 0.5))))
DEFINE1(modified_bessel_k0, "Modified Bessel function of the second kind, order 0, of x > 0. "
        "torch.special.modified_bessel_k0; floating.", 0.5, 3, neg(mul(g, modified_bessel_k1(x))))
DEFINE1(modified_bessel_k1, "Modified Bessel function of the second kind, order 1, of x > 0. "
        "torch.special.modified_bessel_k1; floating.", 0.5, 3, neg(mul(g, add(modified_bessel_k0(x), div(y, x)))))
DEFINE1(scaled_modified_bessel_k0, "exp(x) modified_bessel_k0(x). torch.special.scaled_modified_bessel_k0; floating.",
        0.5, 3, mul(g, sub(y, scaled_modified_bessel_k1(x))))
DEFINE1(scaled_modified_bessel_k1, "exp(x) modified_bessel_k1(x). torch.special.scaled_modified_bessel_k1; floating.",
        0.5, 3, mul(g, sub(sub(y, scaled_modified_bessel_k0(x)), div(y, x))))
DEFINE1(bessel_j0, "Bessel function of the first kind, order 0. torch.special.bessel_j0; floating.", -3, 3,
        neg(mul(g, bessel_j1(x))))
DEFINE1(bessel_j1, "Bessel function of the first kind, order 1. torch.special.bessel_j1; floating.", 0.2, 3,
        mul(g, sub(bessel_j0(x), over(y, x, 0.5))))
DEFINE1(bessel_y0, "Bessel function of the second kind, order 0, of x >= 0. torch.special.bessel_y0; floating.", 0.5, 3,
        neg(mul(g, bessel_y1(x))))
DEFINE1(bessel_y1, "Bessel function of the second kind, order 1, of x >= 0. torch.special.bessel_y1; floating.", 0.5, 3,
        mul(g, sub(bessel_y0(x), div(y, x))))
DEFINE1(spherical_bessel_j0, "sin(x) / x, 1 at 0. torch.special.spherical_bessel_j0; floating.", 0.2, 3,
        mul(g, over(sub(cos(x), y), x, 0)))
DEFINE2_AS(LogProductDef, xlog1py, "a * log(1 + b), 0 where a is 0 and b a number. torch.special.xlog1py; floating.", 0.2, 1, -0.5, 1,
        where(logical_and(eq(a, 0), le(b, -1)), 0.0, mul(g, log1p(b))), mul(g, div(a, add(b, 1))))
DEFINE2(zeta, "Hurwitz' zeta function, the sum of (b + n)^-a. torch.special.zeta; floating, with a gradient in b.",
        2, 4, 0.5, 3, refused("special.zeta", "input"), neg(mul(g, mul(a, zeta(add(a, 1), b)))))
DEFINE2(igamma, "The regularised lower incomplete gamma function P(a, b). torch.igamma; floating, with a gradient in b.",
        0.5, 3, 0.5, 3, refused("igamma", "input"), mul(g, gamma_density(a, b)))
DEFINE2(igammac, "The regularised upper incomplete gamma function Q(a, b). torch.igammac; floating, with a gradient in b.",
        0.5, 3, 0.5, 3, refused("igammac", "input"), neg(mul(g, gamma_density(a, b))))

// clang-format on
#undef DEFINE1
#undef DEFINE2
#undef DEFINE2_AS

#define UNARY(NAME) {&NAME##_def.op, &ops::NAME, nullptr},
#define BINARY(NAME) {&NAME##_def.op, nullptr, &ops::NAME},
#include "base/scalar/names.inc"
const TensorFunction kSpecialFunctions[] = {
#include "base/scalar/special.inc"
};
#include "base/scalar/undefine.inc"

}  // namespace

#define UNARY(NAME) \
  Value NAME(const Value& x) { return call_scalar(NAME##_def, x); }
#define BINARY(NAME) \
  Value NAME(const Operand& a, const Operand& b) { return call_scalar(NAME##_def, a, b); }
#include "base/scalar/names.inc"
//
#include "base/scalar/special.inc"
//
#include "base/scalar/undefine.inc"

Value logit(const Value& input, const std::optional<double>& eps) {
  const Value x = to_floating(input);
  Value p = x;  // as torch: with eps above a half, what is below it becomes eps
  if (eps) p = where(lt(x, *eps), *eps, where(gt(x, 1 - *eps), 1 - *eps, x));
  return sub(log(p), log1p(neg(p)));
}

Value multigammaln(const Value& input, int64_t p) {
  SLUICE_CHECK_KIND(kRuntime, p >= 1, "multigammaln: p has to be greater than or equal to 1: got {}", p);
  const Value x = to_floating(input), halves = iota(0, -0.5, p, x.dtype());
  Ints shape(static_cast<size_t>(x.rank()), 1);
  shape.push_back(p);
  const double constant = 0.25 * static_cast<double>(p * (p - 1)) * std::log(pi);
  Ints wide = x.shape().vec();
  wide.push_back(1);
  return add(sum(lgamma(add(reshape(x, wide), reshape(halves, shape))), Ints{-1}), constant);
}

std::span<const TensorFunction> special_functions() { return kSpecialFunctions; }

}  // namespace sluice::ops
