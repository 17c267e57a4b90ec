// Torch's spelling of elementwise functions that are made of others: floats taken apart, NaN replaced, other names.
#include <cmath>
#include <limits>
#include <numbers>

#include "graph/ops/activation.h"
#include "graph/ops/comparison.h"
#include "graph/ops/complex.h"
#include "graph/ops/composed.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/forms.h"
#include "graph/ops/indexing.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"
#include "graph/ops/special.h"

namespace sluice::ops {
namespace {

Operand wide(const Operand& x) {
  if (is_complex(x.dtype())) return x.is_number() ? x : Operand(cast(x.value(), DType::kComplex128));
  return x.is_number() ? Operand(x.number()) : Operand(cast(x.value(), DType::kFloat64));
}

// In float64, whatever the operands are.
Value float_power(const Operand& base, const Operand& exponent) { return pow(wide(base), wide(exponent)); }

Value nan_to_num(const Value& x, const std::optional<double>& nan, const std::optional<double>& posinf,
                 const std::optional<double>& neginf) {
  if (is_complex(x.dtype()))
    return complex(nan_to_num(real_part(x), nan, posinf, neginf), nan_to_num(imaginary_part(x), nan, posinf, neginf));
  if (!is_floating(x.dtype())) return copy(x);
  const double most = largest(x.dtype());
  return nan_to_num_of_floats(x, nan.value_or(0), posinf.value_or(most), neginf.value_or(-most));
}

// A mantissa in [0.5, 1) and an exponent.
std::pair<Value, Value> frexp(const Value& x) {
  SLUICE_CHECK_KIND(kRuntime, is_floating(x.dtype()), "frexp: only supports floating-point dtypes: got {}",
                    dtype_name(x.dtype()));
  const Value v = cast(x, DType::kFloat64), plain = logical_and(isfinite(v), ne(v, 0));
  const Value size = abs(where(plain, v, 1.0));
  const Value guess = add(floor(log2(size)), 1);
  // log2 is rounded: the mantissa tells whether the exponent is one off.
  const Value rough = ldexp(size, cast(neg(guess), DType::kInt32));
  const Value exponent = add(guess, sub(cast(ge(rough, 1), DType::kFloat64), cast(lt(rough, 0.5), DType::kFloat64)));
  const Value mantissa = where(plain, ldexp(v, cast(neg(exponent), DType::kInt32)), v);
  return {cast(mantissa, x.dtype()), cast(where(plain, exponent, 0.0), DType::kInt32)};
}

Value round_to(const Value& x, int64_t decimals) {
  if (!is_floating(x.dtype())) {
    SLUICE_CHECK_KIND(kUnsupported, decimals == 0, "round: decimals of {} are not supported; cast it to floats",
                      dtype_name(x.dtype()));
    return round(x);
  }
  if (decimals == 0) return round(x);
  const double scale = std::pow(10.0, static_cast<double>(std::abs(decimals)));
  return decimals > 0 ? div(round(mul(x, scale)), scale) : mul(round(div(x, scale)), scale);
}
Value round_whole(const Value& x) { return round(x); }

Value sign_of(const Value& x) { return x.dtype() == DType::kBool ? copy(x) : sign(x); }

Value sgn_of(const Value& x) { return x.dtype() == DType::kBool ? copy(x) : is_complex(x.dtype()) ? sgn(x) : sign(x); }

Value fill(const Value& x, const Operand& value) {
  SLUICE_CHECK_KIND(kRuntime, value.is_number() || value.value().rank() == 0,
                    "fill: only supports 0-dimension value tensor but got tensor with {} dimensions",
                    value.value().rank());
  if (value.is_number()) value.check_fits(x.dtype(), "fill");
  const Value y = expand(value.to(x.dtype()), x.shape());
  if (!x.requires_grad()) return y;
  return where(full(x.shape(), 1, DType::kBool), y, x);  // whose gradient is 0
}

// Each slice of a dim with a p-norm of at most maxnorm.
Value renorm(const Value& x, const Operand& p, int64_t dim, const Operand& maxnorm) {
  SLUICE_CHECK_KIND(kRuntime, x.rank() > 1, "renorm: input needs at least 2 dimensions, got {} dimensions", x.rank());
  SLUICE_CHECK_KIND(kRuntime, p.number() > 0, "renorm: non-positive-norm not supported: p is {}", p.number());
  const int axis = normalize_axis(dim, x.rank(), "renorm");
  Ints others;
  for (int i = 0; i < x.rank(); ++i)
    if (i != axis) others.push_back(i);
  const Value size = norm(x, p.number(), others, true);
  return mul(x, where(gt(size, maxnorm), div(maxnorm, add(size, 1e-7)), 1.0));
}

Form of_numbers(const char* doc, std::vector<Overload> overloads, std::vector<const char*> aliases = {}) {
  return {.doc = doc, .overloads = std::move(overloads), .aliases = std::move(aliases), .in_place = true, .out = true};
}

}  // namespace

std::vector<Form> numeric_forms() {
  return {
      of_numbers("input to the exponent, computed in float64. torch.float_power.",
                 {overload("float_power(Tensor input, Operand exponent) -> Tensor", &float_power),
                  overload("float_power(Scalar input, Tensor exponent) -> Tensor", &float_power)}),
      of_numbers(
          "With numbers for NaN (0) and infinities (the largest there are). torch.nan_to_num.",
          {overload("nan_to_num(Tensor input, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor",
                    &nan_to_num)}),
      {.doc = "Mantissa in [0.5, 1) and exponent: input is mantissa * 2^exponent. torch.frexp.",
       .overloads = {overload("frexp(Tensor input) -> (Tensor mantissa, Tensor exponent)", &frexp)},
       .out = true},
      of_numbers("To the nearest integer, halves to even; or to so many decimals. torch.round.",
                 {overload("round(Tensor input) -> Tensor", &round_whole),
                  overload("round(Tensor input, *, int decimals) -> Tensor", &round_to)},
                 {"special.round"}),
      of_numbers("-1, 0 or 1 by the sign; of complex numbers, input / |input|. torch.sgn.",
                 {overload("sgn(Tensor input) -> Tensor", &sgn_of)}),
      of_numbers("-1, 0 or 1 by the sign; of bools: themselves. torch.sign.",
                 {overload("sign(Tensor input) -> Tensor", &sign_of)}),
      {.doc = "The argument of complex numbers; 0 of positive and pi of negative real ones. torch.angle.",
       .overloads = {overload("angle(Tensor input) -> Tensor", &angle)},
       .out = true},
      of_numbers("log(input / (1 - input)), of input within [eps, 1 - eps]. torch.logit; floating.",
                 {overload("logit(Tensor input, float? eps=None) -> Tensor", &logit)}, {"special.logit"}),
      {.doc = "The value everywhere, in input's shape and dtype. torch.fill.",
       .overloads = {overload("fill(Tensor input, Operand value) -> Tensor", &fill)},
       .method = false},
      {.doc = "Slices of a dim scaled to a p-norm of at most maxnorm. torch.renorm.",
       .overloads = {overload("renorm(Tensor input, Scalar p, int dim, Scalar maxnorm) -> Tensor", &renorm)},
       .in_place = true,
       .out = true},
  };
}

}  // namespace sluice::ops
