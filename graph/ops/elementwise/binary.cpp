// Primitives of two operands, the functions of base/scalar/binary.inc, and composites of them.
#include <cmath>
#include <numbers>
#include <optional>

#include "graph/executor.h"
#include "graph/ops/activation.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/complex.h"
#include "graph/ops/composed.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/elementwise/scalar_def.h"
#include "graph/ops/movement.h"

namespace sluice::ops {
namespace {

using std::numbers::ln2;

// Partial sums of a quotient: only the numerator may be partial.
std::vector<SbpRow> quotient_sbp(Types in, const Attrs& attrs) {
  std::vector<SbpRow> rows = elementwise_sbp(in, attrs);
  rows.push_back(row_of({Sbp::partial_sum(), Sbp::broadcast()}, Sbp::partial_sum()));
  return rows;
}

// The share of the gradient that an operand of maximum and minimum gets, as in torch: at equality each receives half,
// and beside a NaN both receive all.
Value share(const Value& g, const Value& loses, const Value& even) {
  const Value whole = sub(1.0, mul(cast(even, g.dtype()), 0.5));
  return mul(g, sub(whole, cast(loses, g.dtype())));
}

// The gradient of b in a^b. 0^b is constant in a real b >= 0, though its logarithm is not finite. g stands outside, as
// in torch: the slope's own gradient is then not that of a result which may be NaN.
Value power_slope(const Value& g, const Value& a, const Value& b, const Value& y) {
  Value constant = ge(real_part(b), 0);
  if (is_complex(b.dtype())) constant = logical_and(constant, eq(imaginary_part(b), 0));
  const Value zero = logical_and(eq(a, 0), constant);
  return mul(g, where(zero, 0.0, mul(y, log(where(zero, 1.0, a)))));
}

// a / (a^2 + b^2), 0 at the origin.
Value angle_slope(const Value& a, const Value& b) {
  const Value square = add(mul(a, a), mul(b, b));
  return where(eq(square, 0), 0.0, div(a, square));
}

struct DifferenceDef : ScalarDef {};
Value call_scalar(const DifferenceDef& def, const Operand& a, const Operand& b) {
  SLUICE_CHECK_KIND(kRuntime, a.dtype() != DType::kBool && b.dtype() != DType::kBool,
                    "sub: Subtraction, the `-` operator, with a bool tensor is not supported: operands are {} and {}; "
                    "use ~, logical_not() or logical_xor()",
                    dtype_name(a.dtype()), dtype_name(b.dtype()));
  return ops::call_scalar(static_cast<const ScalarDef&>(def), a, b);
}

// As torch: of 16 bits with a number, or a tensor without dims, that they cannot hold, the result alone is rounded.
struct RoundedOnceDef : ScalarDef {};
Value call_scalar(const RoundedOnceDef& def, const Operand& a, const Operand& b) {
  const DType dtype = result_dtype(a, b);
  const auto is_inexact = [&](const Operand& x) {
    if (x.is_number()) return !x.is_complex_number() && round_to(dtype, x.number()) != x.number();
    return x.value().rank() == 0 && dtype_size(x.dtype()) > 2;
  };
  const ScalarDef& plain = def;
  if (!is_floating(dtype) || dtype_size(dtype) != 2 || a.is_number() || !is_inexact(b))
    return ops::call_scalar(plain, a, b);
  return cast(ops::call_scalar(plain, a.to(DType::kFloat32), b.to(DType::kFloat32)), dtype);
}

struct ProductDef : RoundedOnceDef {};
Value call_scalar(const ProductDef& def, const Operand& a, const Operand& b) {
  const RoundedOnceDef& once = def;
  const bool swapped = a.is_number() && !b.is_number() && dtype_size(b.dtype()) == 2 && is_floating(b.dtype());
  return swapped ? call_scalar(once, b, a) : call_scalar(once, a, b);
}

// As torch, a number by a tensor is a multiple of the reciprocal, which is what the gradient keeps.
struct QuotientDef : RoundedOnceDef {};
Value call_scalar(const QuotientDef& def, const Operand& a, const Operand& b) {
  if (a.is_number() && !b.is_number()) return mul(reciprocal(b.value()), a);
  return call_scalar(static_cast<const RoundedOnceDef&>(def), a, b);
}

// Common exponents cost a multiplication or a root, and have exact gradients at 0.
struct PowerDef : ScalarDef {};
Value call_scalar(const PowerDef& def, const Operand& a, const Operand& b) {
  const bool inexact = is_differentiable(result_dtype(a, b));
  if (!a.is_number() && b.is_number() && b.complex_number().imag() == 0 && inexact) {
    const double exponent = b.complex_number().real();
    if (dtype_size(a.dtype()) == 2 && !b.is_complex_number()) b.check_fits(a.dtype(), "pow");
    const Value x = a.to(result_dtype(a, b));
    // Roots and reciprocals keep their result for the gradient; that of pow may be written to.
    const auto free = [](const Value& y) { return y.requires_grad() ? copy(y) : y; };
    if (exponent == 0.5) return free(sqrt(x));
    if (exponent == 1) return x.ptr() == a.value().ptr() ? copy(x) : x;
    if (exponent == 2) return mul(x, x);
    if (exponent == 3) return cube(x);
    if (exponent == -1) return free(reciprocal(x));
    if (exponent == -0.5) return free(rsqrt(x));
  }
  // As torch, the number 0 makes 1 of any complex number; a tensor's 0 makes NaN of 0 and of infinite ones.
  if (b.is_number() && b.complex_number() == 0.0 && is_complex(result_dtype(a, b)))
    return where(full({}, 1, DType::kBool), 1.0, a.to(result_dtype(a, b)));
  SLUICE_CHECK_KIND(kRuntime, inexact || !b.is_number() || b.number() >= 0,
                    "pow: Integers to negative integer powers are not allowed: exponent {}; it must be >= 0, or one of "
                    "them floating",
                    b.number());
  return ops::call_scalar(static_cast<const ScalarDef&>(def), a, b);
}

// The next number of 16 bits is the next pattern of bits.
struct NeighbourDef : ScalarDef {};
Value call_scalar(const NeighbourDef& def, const Operand& a, const Operand& b) {
  const std::optional<DType> dtype = sixteen_bits(a, b);
  if (!dtype) return ops::call_scalar(static_cast<const ScalarDef&>(def), a, b);
  const auto [x, y] = promoted(a, b);
  SLUICE_CHECK_KIND(kUnsupported, !x.requires_grad() && !y.requires_grad(),
                    "nextafter: has no gradient of {}; use float32 or detach()", dtype_name(*dtype));
  const Value outward = eq(gt(y, x), gt(x, 0));
  const Value bits = add(view_as_dtype(x, DType::kInt16), sub(mul(cast(outward, DType::kInt16), 2), 1));
  const Value least = view_as_dtype(full({}, 1, DType::kInt16), *dtype);
  const Value next = where(eq(x, 0), copysign(least, y), view_as_dtype(bits, *dtype));
  return where(eq(x, y), y, where(logical_and(eq(x, x), eq(y, y)), next, add(x, y)));
}

struct LogProductDef : ScalarDef {};
Value call_scalar(const LogProductDef& def, const Operand& a, const Operand& b) {
  return call_log_product(def, a, b, &log);
}

// As torch: integers are exponents, whatever the result's dtype can hold; powers to floats are numbers of that dtype.
struct ScaledDef : ScalarDef {};
Value call_scalar(const ScaledDef& def, const Operand& a, const Operand& b) {
  if (const DType result = result_dtype(a, b); is_floating(result) && is_floating(b.dtype()))
    return mul(a.to(result), exp2(b.to(result)));
  const std::optional<DType> dtype = sixteen_bits(a, b);
  const ScalarDef& plain = def;
  if (!dtype) return ops::call_scalar(plain, a, b);
  return cast(ops::call_scalar(plain, a.to(DType::kFloat32), b.to(DType::kFloat32)), *dtype);
}

ScalarDef of_numbers(ScalarDef def) {
  def.op.infer = [infer = def.op.infer](Types in, Present present, const Attrs& attrs) {
    SLUICE_CHECK_KIND(kRuntime, in[0].dtype != DType::kBool,
                      "operands: dtype is bool; must be integers (cast them first)");
    return infer(in, present, attrs);
  };
  return def;
}

Value none() { return {}; }
using Slope = Value (*)(const Value& g, const Value& a, const Value& b, const Value& y);
#define SLOPE(...)                                                                          \
  [](const Value& g, const Value& a, const Value& b, const Value& y) -> Value {             \
    static_cast<void>(g), static_cast<void>(a), static_cast<void>(b), static_cast<void>(y); \
    return __VA_ARGS__;                                                                     \
  }
// DEFINE(NAME, DOC, SBP, A_LOW, A_HIGH, B_LOW, B_HIGH, OF_A, OF_B): samples lie in these ranges, where the function is
// smooth; the gradients of the operands `a` and `b` are made of those, of the result `y` and of its gradient `g`.
#define DEFINE_AS(TYPE, NAME, DOC, SBP, A_LOW, A_HIGH, B_LOW, B_HIGH, OF_A, ...)                                     \
  const TYPE NAME##_def{                                                                                             \
      binary_def(#NAME, DOC, SBP, {A_LOW, A_HIGH}, {B_LOW, B_HIGH}, [](const GradContext& c) -> std::vector<Value> { \
        const Slope of_a = SLOPE(OF_A), of_b = SLOPE(__VA_ARGS__);                                                   \
        const auto slope = [&](size_t i, Slope of) {                                                                 \
          return c.needs[i] ? of(c.grad_outputs[0], c.inputs[0], c.inputs[1], c.outputs[0]) : Value();               \
        };                                                                                                           \
        return {slope(0, of_a), slope(1, of_b)};                                                                     \
      })};
#define DEFINE(...) DEFINE_AS(ScalarDef, __VA_ARGS__)
#define INTEGERS(NAME, DOC) \
  const ScalarDef NAME##_def = discrete_def(#NAME, DOC, {DType::kInt64, DType::kUInt8, DType::kBool});
#define WHOLE_NUMBERS(NAME, DOC) \
  const ScalarDef NAME##_def = of_numbers(discrete_def(#NAME, DOC, {DType::kInt64, DType::kUInt8}));
// clang-format off

DEFINE(add, "a + b, broadcast. torch.add; of bools: or.", linear_sbp, -1, 1, -1, 1, g, g)
DEFINE_AS(DifferenceDef, sub, "a - b, broadcast. torch.sub.", linear_sbp, -1, 1, -1, 1, g, neg(g))
DEFINE_AS(ProductDef, mul, "a * b, broadcast. torch.mul; of bools: and.", bilinear_sbp, -1, 1, -1, 1, mul(g, b), mul(g, a))
DEFINE_AS(QuotientDef, div, "a / b, broadcast. torch.div; floating.", quotient_sbp, -1, 1, 0.5, 2,
       div(g, b), neg(mul(div(g, b), div(a, b))))
DEFINE_AS(PowerDef, pow, "a to the b, broadcast. torch.pow; integers to negative powers are cut to integers.", elementwise_sbp,
          0.5, 2, -2, 2,
          where(eq(b, 0), 0.0, mul(g, mul(b, pow(a, sub(b, 1))))), power_slope(g, a, b, y))
DEFINE(maximum, "The larger of a and b; NaN if either is. torch.maximum.", elementwise_sbp, -1, -0.1, 0.1, 1,
       share(g, lt(a, b), eq(a, b)), share(g, gt(a, b), eq(a, b)))
DEFINE(minimum, "The smaller of a and b; NaN if either is. torch.minimum.", elementwise_sbp, -1, -0.1, 0.1, 1,
       share(g, gt(a, b), eq(a, b)), share(g, lt(a, b), eq(a, b)))
DEFINE(clamp_min, "b where a < b or b is NaN, else a. torch.clamp_min.", elementwise_sbp, 0.2, 1, -1, -0.2,
       where(ge(a, b), g, 0.0), where(lt(a, b), g, 0.0))
DEFINE(clamp_max, "b where a > b or b is NaN, else a. torch.clamp_max.", elementwise_sbp, -1, -0.2, 0.2, 1,
       where(le(a, b), g, 0.0), where(gt(a, b), g, 0.0))
DEFINE(fmax, "The larger of a and b; where one is NaN, the other. torch.fmax.", elementwise_sbp, -1, -0.1, 0.1, 1,
       where(logical_or(ge(a, b), isnan(b)), g, 0.0), where(logical_or(ge(a, b), isnan(b)), 0.0, g))
DEFINE(fmin, "The smaller of a and b; where one is NaN, the other. torch.fmin.", elementwise_sbp, -1, -0.1, 0.1, 1,
       where(logical_or(le(a, b), isnan(b)), g, 0.0), where(logical_or(le(a, b), isnan(b)), 0.0, g))
DEFINE(fmod, "Remainder of a / b with the sign of a. torch.fmod.", elementwise_sbp, 2.2, 2.8, 0.95, 1.05,
       g, neg(mul(g, truncated_quotient(a, b))))
DEFINE(remainder, "Remainder of a / b with the sign of b. torch.remainder.", elementwise_sbp, 2.2, 2.8, 0.95, 1.05,
       g, neg(mul(g, floor_divide(a, b))))
DEFINE_AS(RoundedOnceDef, floor_divide,
       "a / b rounded towards minus infinity. torch.floor_divide; an integer divided by 0 is an error.",
       elementwise_sbp, 2.2, 2.8, 0.95, 1.05, zeros_like(a), zeros_like(b))
DEFINE(atan2, "Angle of the point (b, a). torch.atan2; floating.", elementwise_sbp, 0.2, 1, 0.2, 1,
       mul(g, angle_slope(b, a)), neg(mul(g, angle_slope(a, b))))
DEFINE(hypot, "sqrt(a^2 + b^2) without overflow. torch.hypot; floating.", elementwise_sbp, 0.2, 1, 0.2, 1,
       mul(g, div(a, y)), mul(g, div(b, y)))
DEFINE(copysign, "|a| with the sign of b, -0 and NaN included. torch.copysign; floating.", elementwise_sbp,
       0.2, 1, -1, -0.2,
       mul(g, mul(sign(a), sign(y))), zeros_like(b))
DEFINE_AS(NeighbourDef, nextafter, "The number next to a towards b. torch.nextafter; floating.", elementwise_sbp, 0.2, 1, 0.2, 1,
       where(ne(a, b), g, 0.0), zeros_like(b))
DEFINE(logaddexp, "log(exp(a) + exp(b)) without overflow. torch.logaddexp; floating.", elementwise_sbp, -1, 1, -1, 1,
       mul(g, sigmoid(sub(a, b))), mul(g, sigmoid(sub(b, a))))
DEFINE(logaddexp2, "log2(2^a + 2^b) without overflow. torch.logaddexp2; floating.", elementwise_sbp, -1, 1, -1, 1,
       mul(g, sigmoid(mul(sub(a, b), ln2))), mul(g, sigmoid(mul(sub(b, a), ln2))))
DEFINE_AS(LogProductDef, xlogy, "a * log(b), 0 where a is 0 and b a number. torch.xlogy; floating.", elementwise_sbp, 0.2, 1, 0.5, 2,
       where(logical_and(eq(a, 0), le(b, 0)), 0.0, xlogy(g, b)), mul(g, div(a, b)))
DEFINE_AS(ScaledDef, ldexp, "a * 2^b. torch.ldexp; floating.", elementwise_sbp, -1, 1, -2, 2,
       ldexp(g, b), mul(g, mul(ldexp(a, b), ln2)))
DEFINE(polygamma, "Derivative of digamma(b) of order a, which is rounded. torch.polygamma; floating.", elementwise_sbp,
       1.1, 1.4, 0.5, 3,
       none(), mul(g, polygamma(add(a, 1), b)))
DEFINE(heaviside, "0 where a < 0, 1 where a > 0, b where a is 0. torch.heaviside.", elementwise_sbp, 0.2, 1, -1, 1,
       none(), none())
WHOLE_NUMBERS(gcd, "Greatest common divisor, >= 0. torch.gcd; integers.")
WHOLE_NUMBERS(lcm, "Least common multiple, >= 0. torch.lcm; integers.")
INTEGERS(bitwise_and, "a & b of integers or bools. torch.bitwise_and.")
INTEGERS(bitwise_or, "a | b of integers or bools. torch.bitwise_or.")
INTEGERS(bitwise_xor, "a ^ b of integers or bools. torch.bitwise_xor.")
WHOLE_NUMBERS(bitwise_left_shift, "a << b. torch.bitwise_left_shift; integers.")
WHOLE_NUMBERS(bitwise_right_shift, "a >> b, which keeps the sign. torch.bitwise_right_shift; integers.")

// clang-format on
#undef INTEGERS
#undef WHOLE_NUMBERS
#undef DEFINE
#undef DEFINE_AS
#undef SLOPE

#define UNARY(NAME)
#define BINARY(NAME) {&NAME##_def.op, nullptr, &ops::NAME},
#include "base/scalar/names.inc"
const TensorFunction kBinaryFunctions[] = {
#include "base/scalar/binary.inc"
};
#include "base/scalar/undefine.inc"

}  // namespace

#define UNARY(NAME)
#define BINARY(NAME) \
  Value NAME(const Operand& a, const Operand& b) { return call_scalar(NAME##_def, a, b); }
#include "base/scalar/names.inc"
//
#include "base/scalar/binary.inc"
//
#include "base/scalar/undefine.inc"

Value lerp(const Value& a, const Value& b, const Operand& weight) {
  // From the nearer end, so that weight 1 gives b exactly.
  if (weight.is_number() && !weight.is_complex_number() && is_floating(a.dtype()) && a.dtype() == b.dtype())
    return lerp_of_floats(a, b, weight.number());
  const Value d = sub(b, a);
  if (weight.is_complex_number()) {
    if (std::abs(weight.complex_number()) < 0.5) return add(a, mul(d, weight));
    return sub(b, mul(d, 1.0 - weight.complex_number()));
  }
  if (weight.is_number()) {
    if (std::abs(weight.number()) < 0.5) return add(a, mul(d, weight));
    return sub(b, mul(d, 1 - weight.number()));
  }
  const Value& w = weight.value();
  return where(lt(abs(w), 0.5), add(a, mul(w, d)), sub(b, mul(d, sub(1.0, w))));
}

std::span<const TensorFunction> binary_functions() { return kBinaryFunctions; }

}  // namespace sluice::ops
