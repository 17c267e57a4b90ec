// Torch's spelling of arithmetic: names, operators, and functions that are more than one op.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>

#include "graph/executor.h"
#include "graph/ops/activation.h"
#include "graph/ops/comparison.h"
#include "graph/ops/complex.h"
#include "graph/ops/composed.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/forms.h"
#include "graph/ops/reduction.h"
#include "graph/tape.h"

namespace sluice::ops {
namespace {

bool one_of(const std::string& name, std::initializer_list<const char*> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_one(const Operand& x) { return x.own_dtype() != DType::kBool && x.complex_number() == 1.0; }

// f of a way to read operands: as torch, what results in 16 bits is computed in float32 and rounded once.
template <class F>
Value rounded_once(DType dtype, F&& f) {
  if (!is_floating(dtype) || dtype_size(dtype) != 2) return f([](const Value& x) -> const Value& { return x; });
  return cast(f([](const Value& x) { return cast(x, DType::kFloat32); }), dtype);
}

// alpha * b, computed in the dtype that an operation on a and b has.
Operand scaled(const char* name, const Operand& a, const Operand& b, const Operand& alpha) {
  if (is_one(alpha)) return b;
  const DType dtype = result_dtype(a, b);
  SLUICE_CHECK_KIND(kRuntime, alpha.own_dtype() != DType::kBool || dtype == DType::kBool,
                    "{}: Boolean alpha only supported for Boolean results: the result is {}; give a number", name,
                    dtype_name(dtype));
  SLUICE_CHECK_KIND(kRuntime, !alpha.is_complex_number() || is_complex(dtype),
                    "{}: For non-complex input tensors, argument alpha must not be a complex number", name);
  SLUICE_CHECK_KIND(kRuntime, !is_floating(alpha.own_dtype()) || is_differentiable(dtype),
                    "{}: For integral input tensors, argument alpha must not be a floating point number: got {}", name,
                    alpha.number());
  alpha.check_fits(dtype, name);
  if (dtype == DType::kBool) return alpha.number() != 0 ? b : Operand(false);
  if (!b.is_number()) return mul(cast(b.value(), dtype), alpha);
  if (b.is_complex_number() || alpha.is_complex_number()) return b.complex_number() * alpha.complex_number();
  const double product = b.number() * alpha.number();
  if (is_floating(b.own_dtype()) || is_floating(alpha.own_dtype())) return product;
  constexpr double kExact = 9007199254740992;  // beyond 2**53 doubles have not all whole numbers
  if (std::abs(product) < kExact) return static_cast<int64_t>(product);
  return is_floating(dtype) ? Operand(product) : mul(b.to(dtype), alpha);
}

Value add_scaled(const Operand& a, const Operand& b, const Operand& alpha) {
  return add(a, scaled("add", a, b, alpha));
}
Value rsub_scaled(const Value& x, const Operand& other, const Operand& alpha) {
  return sub(other, scaled("rsub", other, x, alpha));
}
Value sub_scaled(const Operand& a, const Operand& b, const Operand& alpha) {
  return sub(a, scaled("sub", a, b, alpha));
}

}  // namespace

Value truncated_quotient(const Operand& a, const Operand& b) {
  Value y;
  {
    const GradMode no_grad(false);
    y = rounded_once(result_dtype(a, b), [&](auto wide) {
      const auto read = [&](const Operand& x) { return x.is_number() ? x : Operand(wide(x.value())); };
      return trunc(div(read(a), read(b)));
    });
  }
  std::vector<Value> operands;
  for (const Operand& x : {a, b})
    if (!x.is_number()) operands.push_back(x.value());
  std::vector<TensorType> types;
  for (const Value& x : operands) types.push_back(x.type());
  record_function("div", operands, {&y, 1}, [types](std::span<const Value> grads) {
    std::vector<Value> zeros;
    for (const TensorType& type : types) zeros.push_back(cast(sum_to(zeros_like(grads[0]), type.shape), type.dtype));
    return zeros;
  });
  return y;
}

namespace {

Value div_rounded(const Operand& a, const Operand& b, const std::optional<std::string>& mode) {
  if (!mode) return div(a, b);
  const DType dtype = result_dtype(a, b);
  SLUICE_CHECK(*mode == "trunc" || *mode == "floor", "div: rounding_mode is '{}'; must be None, 'trunc' or 'floor'",
               *mode);
  SLUICE_CHECK_KIND(kUnsupported, dtype != DType::kBool,
                    "div: rounding is not implemented for 'Bool'; cast to numbers");
  if (*mode == "floor") return floor_divide(a, b);
  if (is_floating(dtype)) return truncated_quotient(a, b);
  // Exact, as a quotient of floats is not. Integers have no history; an alias may be read besides `a` (reads_once).
  const Operand whole = a.own_dtype() == DType::kBool ? Operand(a.to(dtype)) : a;
  const Operand same = whole.is_number() ? whole : Operand(current_executor().detach(whole.value()));
  return floor_divide(sub(whole, fmod(same, b)), b);
}

// For complex numbers the one with the larger real part is taken out. Infinite ones that are equal have no difference.
Value log_of_sum(const Operand& x, const Operand& y) {
  const DType dtype = result_dtype(x, y);
  if (!is_complex(dtype)) return logaddexp(x, y);
  const Value a = x.to(dtype), b = y.to(dtype);
  const Value first = ge(real_part(a), real_part(b)), high = where(first, a, b), low = where(first, b, a);
  const Value same = logical_and(eq(a, b), isinf(real_part(a)));
  return where(same, high, add(high, log1p(exp(sub(low, where(same, 0.0, high))))));
}

Value lerp_of(const Value& x, const Value& end, const Operand& weight) {
  const bool complex = is_complex(weight.own_dtype());
  SLUICE_CHECK_KIND(kRuntime, !weight.is_number() || !complex || is_complex(x.dtype()),
                    "lerp: value cannot be converted to type {} without overflow: the weight is complex",
                    dtype_name(x.dtype()));
  SLUICE_CHECK_KIND(kRuntime, weight.is_number() || weight.value().rank() == 0 || complex == is_complex(x.dtype()),
                    "lerp: expected dtype {} for `weight` but got dtype {}", dtype_name(x.dtype()),
                    dtype_name(weight.own_dtype()));
  const DType dtype = weight.is_number() ? x.dtype() : result_dtype(x, weight);
  const Operand share = weight.own_dtype() == DType::kBool ? Operand(weight.to(dtype)) : weight;
  return rounded_once(dtype, [&](auto wide) {
    return lerp(wide(x), wide(end), share.is_number() ? share : Operand(wide(share.value())));
  });
}

Value times(const Value& x, const Operand& by) { return is_one(by) ? x : mul(x, by); }

// f of tensors as torch computes on them: all are of the result's dtype before anything is computed.
template <class F>
Value of_three(const Value& x, const Value& a, const Value& b, F&& f) {
  // A number among tensors with dims does not raise them.
  const bool raises = x.rank() > 0 || (a.rank() == 0 && b.rank() == 0);
  const DType dtype = promote(x.dtype(), raises ? result_dtype(a, b) : promote(a.dtype(), b.dtype()));
  const auto read = [&](const Value& y) { return raises ? cast(y, dtype) : y; };
  return rounded_once(dtype, [&](auto wide) { return f(wide(x), wide(read(a)), wide(read(b))); });
}

// Whether all are of one floating dtype, and the number is real.
bool are_floats(const Value& x, const Value& a, const Value& b, const Operand& number) {
  return is_floating(x.dtype()) && a.dtype() == x.dtype() && b.dtype() == x.dtype() && number.is_number() &&
         !number.is_complex_number();
}

Value addcmul(const Value& x, const Value& a, const Value& b, const Operand& given) {
  const DType dtype = promote(x.dtype(), promote(a.dtype(), b.dtype()));
  // As torch: the fraction of a number is lost among integers.
  const bool whole = is_integral(dtype) && is_floating(given.own_dtype());
  if (whole) given.check_fits(dtype, "addcmul");
  const Operand value = whole ? Operand(static_cast<int64_t>(given.number())) : given;
  return of_three(x, a, b, [&](const Value& to, const Value& c, const Value& d) {
    if (are_floats(to, c, d, value)) return addcmul_of_floats(to, c, d, value.number());
    return add(to, times(mul(c, d), value));
  });
}

Value addcdiv(const Value& x, const Value& a, const Value& b, const Operand& value) {
  return of_three(x, a, b, [&](const Value& to, const Value& c, const Value& d) {
    if (are_floats(to, c, d, value)) return addcdiv_of_floats(to, c, d, value.number());
    return add(to, times(div(c, d), value));
  });
}

Value clamp_from(const Value& x, const Operand& min) { return clamp(x, min, std::nullopt); }
Value clamp_to(const Value& x, const Operand& max) { return clamp(x, std::nullopt, max); }

Value where_method(const Value& x, const Value& condition, const Operand& other) {
  return where(condition.dtype() == DType::kUInt8 ? cast(condition, DType::kBool) : condition, x, other);
}

Value positive(const Value& x) {
  SLUICE_CHECK_KIND(kRuntime, x.dtype() != DType::kBool,
                    "positive: The `+` operator, on a bool tensor is not supported; it must be of numbers");
  return x;
}

// The order comes first in the function, the tensor in the method.
Value polygamma_of(int64_t n, const Value& x) { return polygamma(n, x); }
Value polygamma_method(const Value& x, int64_t n) { return polygamma(n, x); }

// Elementwise functions can write into their first operand and into out=.
Form elementwise(const char* doc, std::vector<Overload> overloads, std::vector<const char*> aliases = {}) {
  return {.doc = doc, .overloads = std::move(overloads), .aliases = std::move(aliases), .in_place = true, .out = true};
}

Form with_operator(Form form, const char* name, bool reflected) {
  form.python_operator = name;
  form.reflected = reflected;
  return form;
}

void add_arithmetic(std::vector<Form>& forms) {
  forms.push_back(with_operator(
      elementwise("input + alpha * other, broadcast; of bools: or. torch.add.",
                  {overload("add(Operand input, Operand other, *, Scalar alpha=1) -> Tensor", &add_scaled)}),
      "add", true));
  forms.push_back(with_operator(
      elementwise("input - alpha * other, broadcast. torch.sub.",
                  {overload("sub(Operand input, Operand other, *, Scalar alpha=1) -> Tensor", &sub_scaled)},
                  {"subtract"}),
      "sub", true));
  forms.push_back(
      with_operator(elementwise("input * other, broadcast; of bools: and. torch.mul.",
                                {overload("mul(Operand input, Operand other) -> Tensor", &mul)}, {"multiply"}),
                    "mul", true));
  forms.push_back(with_operator(
      elementwise("input / other, broadcast; rounded towards 0 ('trunc') or minus infinity ('floor'). torch.div.",
                  {overload("div(Operand input, Operand other, *, str? rounding_mode=None) -> Tensor", &div_rounded)},
                  {"divide"}),
      "truediv", true));
  forms.push_back(elementwise("input / other, broadcast. torch.true_divide.",
                              {overload("true_divide(Operand input, Operand other) -> Tensor", &div)}));
  forms.push_back(
      with_operator(elementwise("input / other rounded towards minus infinity. torch.floor_divide.",
                                {overload("floor_divide(Operand input, Operand other) -> Tensor", &floor_divide)}),
                    "floordiv", true));
  forms.push_back(with_operator(elementwise("Remainder of input / other with the sign of other. torch.remainder.",
                                            {overload("remainder(Tensor input, Operand other) -> Tensor", &remainder),
                                             overload("remainder(Scalar input, Tensor other) -> Tensor", &remainder)}),
                                "mod", true));
  forms.push_back(elementwise("Remainder of input / other with the sign of input. torch.fmod.",
                              {overload("fmod(Tensor input, Operand other) -> Tensor", &fmod)}));
  forms.push_back(with_operator(elementwise("input to the exponent, broadcast. torch.pow.",
                                            {overload("pow(Tensor input, Operand exponent) -> Tensor", &pow),
                                             overload("pow(Scalar input, Tensor exponent) -> Tensor", &pow)}),
                                "pow", true));
  forms.push_back(elementwise("|input| with the sign of other. torch.copysign.",
                              {overload("copysign(Tensor input, Operand other) -> Tensor", &copysign)}));
  forms.push_back(elementwise("input * log(other), 0 where input is 0. torch.xlogy.",
                              {overload("xlogy(Tensor input, Operand other) -> Tensor", &xlogy),
                               overload("xlogy(Scalar input, Tensor other) -> Tensor", &xlogy)},
                              {"special.xlogy"}));
  forms.push_back(elementwise("0, 1, or values where input is 0. torch.heaviside.",
                              {overload("heaviside(Tensor input, Tensor values) -> Tensor", &heaviside)}));
  forms.push_back({.doc = "The derivative of order n of digamma. torch.polygamma.",
                   .overloads = {overload("polygamma(int n, Tensor input) -> Tensor", &polygamma_of)},
                   .aliases = {"special.polygamma"},
                   .method = false,
                   .out = true});
  forms.push_back({.doc = "The derivative of order n of digamma. torch.Tensor.polygamma.",
                   .overloads = {overload("polygamma(Tensor input, int n) -> Tensor", &polygamma_method)},
                   .function = false,
                   .in_place = true});
  forms.push_back(elementwise("input + weight * (end - input). torch.lerp.",
                              {overload("lerp(Tensor input, Tensor end, Operand weight) -> Tensor", &lerp_of)}));
  forms.push_back(elementwise(
      "input + value * tensor1 * tensor2. torch.addcmul.",
      {overload("addcmul(Tensor input, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor", &addcmul)}));
  forms.push_back(elementwise(
      "input + value * tensor1 / tensor2. torch.addcdiv.",
      {overload("addcdiv(Tensor input, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor", &addcdiv)}));
}

void add_bounds(std::vector<Form>& forms) {
  forms.push_back(elementwise("input within [min, max]; either bound may be absent, not both. torch.clamp.",
                              {overload("clamp(Tensor input, Operand? min=None, Operand? max=None) -> Tensor", &clamp)},
                              {"clip"}));
  forms.push_back(elementwise("The larger of input and min. torch.clamp_min.",
                              {overload("clamp_min(Tensor input, Operand min) -> Tensor", &clamp_from)}));
  forms.push_back(elementwise("The smaller of input and max. torch.clamp_max.",
                              {overload("clamp_max(Tensor input, Operand max) -> Tensor", &clamp_to)}));
  forms.push_back(
      {.doc = "`value` where mask, else input. torch.masked_fill.",
       .overloads = {overload("masked_fill(Tensor input, Tensor mask, Operand value) -> Tensor", &masked_fill)},
       .in_place = true});
  forms.push_back(
      {.doc = "other - alpha * input. torch.rsub.",
       .overloads = {overload("rsub(Tensor input, Operand other, *, Scalar alpha=1) -> Tensor", &rsub_scaled)},
       .method = false});
  forms.push_back(
      {.doc = "input where condition, else other. torch.Tensor.where.",
       .overloads = {overload("where(Tensor input, Tensor condition, Operand other) -> Tensor", &where_method)},
       .function = false});
  forms.push_back(
      {.doc = "|input - other| <= atol + rtol * |other|, elementwise. torch.isclose.",
       .overloads = {overload(
           "isclose(Tensor input, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> Tensor",
           &isclose)}});
}

using Compare = Value (*)(const Operand&, const Operand&);

void add_comparisons(std::vector<Form>& forms) {
  const auto comparison = [&](const char* name, const char* doc, Compare f, std::vector<const char*> aliases) {
    const std::string signature = std::string(name) + "(Tensor input, Operand other) -> Tensor";
    forms.push_back(with_operator(elementwise(doc, {overload(signature, f)}, std::move(aliases)), name, false));
  };
  comparison("eq", "input == other, bool. torch.eq.", &eq, {});
  comparison("ne", "input != other, bool. torch.ne.", &ne, {"not_equal"});
  comparison("lt", "input < other, bool. torch.lt.", &lt, {"less"});
  comparison("le", "input <= other, bool. torch.le.", &le, {"less_equal"});
  comparison("gt", "input > other, bool. torch.gt.", &gt, {"greater"});
  comparison("ge", "input >= other, bool. torch.ge.", &ge, {"greater_equal"});
  const auto bitwise = [&](const char* name, const char* doc, Compare f) {
    const std::string signature = std::string("bitwise_") + name + "(Tensor input, Operand other) -> Tensor";
    forms.push_back(with_operator(elementwise(doc, {overload(signature, f)}), name, true));
  };
  bitwise("and", "And of bools or bits. torch.bitwise_and.", &bitwise_and);
  bitwise("or", "Or of bools or bits. torch.bitwise_or.", &bitwise_or);
  bitwise("xor", "Exclusive or of bools or bits. torch.bitwise_xor.", &bitwise_xor);
  const auto shift = [&](const char* signature, const char* doc, Compare f, const char* name) {
    forms.push_back(with_operator(elementwise(doc, {overload(signature, f)}), name, true));
  };
  shift("bitwise_left_shift(Tensor input, Operand other) -> Tensor",
        "Bits moved to the left. torch.bitwise_left_shift.", &bitwise_left_shift, "lshift");
  shift("bitwise_right_shift(Tensor input, Operand other) -> Tensor",
        "Bits moved to the right, the sign staying. torch.bitwise_right_shift.", &bitwise_right_shift, "rshift");
  forms.push_back(with_operator(elementwise("Not of bools or bits. torch.bitwise_not.",
                                            {overload("bitwise_not(Tensor input) -> Tensor", &bitwise_not)}),
                                "invert", false));
  const auto test = [&](const char* signature, const char* doc, Value (*f)(const Value&)) {
    forms.push_back({.doc = doc, .overloads = {overload(signature, f)}});
  };
  test("isnan(Tensor input) -> Tensor", "NaN, bool. torch.isnan.", &isnan);
  test("isinf(Tensor input) -> Tensor", "Infinite, bool. torch.isinf.", &isinf);
  test("isfinite(Tensor input) -> Tensor", "Neither NaN nor infinite, bool. torch.isfinite.", &isfinite);
  const auto test_out = [&](const char* signature, const char* doc, Value (*f)(const Value&)) {
    forms.push_back({.doc = doc, .overloads = {overload(signature, f)}, .out = true});
  };
  test_out("isposinf(Tensor input) -> Tensor", "Infinite and positive, bool. torch.isposinf.", &isposinf);
  test_out("isneginf(Tensor input) -> Tensor", "Infinite and negative, bool. torch.isneginf.", &isneginf);
  test_out("signbit(Tensor input) -> Tensor", "The sign is negative, also of zeros, bool. torch.signbit.", &signbit);
  const auto larger = [&](const char* signature, const char* doc, Compare f) {
    forms.push_back({.doc = doc, .overloads = {overload(signature, f)}, .out = true});
  };
  larger("maximum(Tensor input, Tensor other) -> Tensor", "The larger of both; NaN if either is. torch.maximum.",
         &maximum);
  larger("minimum(Tensor input, Tensor other) -> Tensor", "The smaller of both; NaN if either is. torch.minimum.",
         &minimum);
  larger("fmax(Tensor input, Tensor other) -> Tensor", "The larger of both, without NaN where one is. torch.fmax.",
         &fmax);
  larger("fmin(Tensor input, Tensor other) -> Tensor", "The smaller of both, without NaN where one is. torch.fmin.",
         &fmin);
  larger("logaddexp(Tensor input, Tensor other) -> Tensor", "log(exp(input) + exp(other)). torch.logaddexp.",
         &log_of_sum);
  larger("logaddexp2(Tensor input, Tensor other) -> Tensor", "log2(2^input + 2^other). torch.logaddexp2.", &logaddexp2);
  forms.push_back(elementwise("Angle of the point (other, input). torch.atan2; floating.",
                              {overload("atan2(Tensor input, Tensor other) -> Tensor", &atan2)}, {"arctan2"}));
}

void add_unary(std::vector<Form>& forms) {
  forms.push_back(with_operator(
      elementwise("-input. torch.neg.", {overload("neg(Tensor input) -> Tensor", &neg)}, {"negative"}), "neg", false));
  forms.push_back(with_operator(
      elementwise("|input|. torch.abs.", {overload("abs(Tensor input) -> Tensor", &abs)}, {"absolute"}), "abs", false));
  forms.push_back({.doc = "The input itself. torch.positive.",
                   .overloads = {overload("positive(Tensor input) -> Tensor", &positive)},
                   .python_operator = "pos",
                   .sharing = Sharing::kItself});
  forms.push_back(
      elementwise("Integer part. torch.trunc.", {overload("trunc(Tensor input) -> Tensor", &trunc)}, {"fix"}));
  forms.push_back(
      elementwise("input * input. torch.square.", {overload("square(Tensor input) -> Tensor", [](const Value& x) {
                    return square(x.dtype() == DType::kBool ? cast(x, DType::kInt64) : x);
                  })}));
  forms.push_back(elementwise("Hyperbolic tangent. torch.tanh; floating.",
                              {overload("tanh(Tensor input) -> Tensor", &tanh)}, {"nn.functional.tanh"}));
  forms.push_back(elementwise("1 / (1 + exp(-input)). torch.sigmoid; floating.",
                              {overload("sigmoid(Tensor input) -> Tensor", &sigmoid)},
                              {"nn.functional.sigmoid", "special.expit"}));
  forms.push_back({.doc = "max(input, 0). torch.relu.",
                   .overloads = {overload("relu(Tensor input) -> Tensor", &relu)},
                   .in_place = true});
}

}  // namespace

Value isclose(const Value& a, const Value& b, double rtol, double atol, bool equal_nan) {
  SLUICE_CHECK_KIND(kRuntime, a.dtype() == b.dtype(), "isclose: {} did not match {}; both tensors must have one dtype",
                    dtype_name(a.dtype()), dtype_name(b.dtype()));
  for (const auto& [name, tolerance] : {std::pair("rtol", rtol), std::pair("atol", atol)})
    SLUICE_CHECK_KIND(kRuntime, tolerance >= 0, "isclose: {} must be greater than or equal to zero, but got {}", name,
                      tolerance);
  const Value x = to_floating(a), y = to_floating(b);  // differences of integers may not fit theirs
  const Value error = abs(sub(x, y));
  const Value near = logical_and(isfinite(error), le(error, add(abs(mul(y, rtol)), atol)));
  const Value close = logical_or(eq(a, b), near);
  return equal_nan ? logical_or(close, logical_and(isnan(x), isnan(y))) : close;
}

std::vector<Form> arithmetic_forms() {
  std::vector<Form> forms;
  add_arithmetic(forms);
  add_bounds(forms);
  add_comparisons(forms);
  add_unary(forms);
  for (Form& form : forms)
    form.reads_once = one_of(
        form.name(), {"add", "sub", "mul", "div", "true_divide", "floor_divide", "addcmul", "addcdiv", "neg", "abs",
                      "trunc", "square", "tanh", "sigmoid", "relu", "clamp", "clamp_min", "clamp_max", "masked_fill"});
  return forms;
}

}  // namespace sluice::ops
