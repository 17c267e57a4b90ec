// Functions of single elements.
#include "graph/ops/elementwise.h"

#include "base/error.h"
#include "graph/ops/activation.h"
#include "graph/ops/comparison.h"
#include "graph/ops/complex.h"
#include "graph/ops/creation.h"
#include "graph/ops/movement.h"
#include "graph/ops/random.h"
#include "onnx/table.h"
#include "tensor/random.h"

namespace sluice::onnx {
namespace {

using ops::Operand;

auto unary(Value (*f)(const Value&)) {
  return [f](const Call& c) { return f(c.in(0)); };
}
auto binary(Value (*f)(const Operand&, const Operand&)) {
  return [f](const Call& c) { return f(c.in(0), c.in(1)); };
}
// f(f(a, b), c)...; of one value, itself.
auto folded(Value (*f)(const Operand&, const Operand&)) {
  return [f](const Call& c) {
    Value result = c.in(0);
    for (size_t i = 1; i < c.size(); ++i) result = f(result, c.in(i));
    return result;
  };
}

Value quotient(const Call& c) {
  const Value &a = c.in(0), &b = c.in(1);
  if (is_differentiable(a.dtype())) return ops::div(a, b);
  return ops::floor_divide(ops::sub(a, ops::fmod(a, b)), b);  // towards zero
}

Value power(const Call& c) { return ops::cast(ops::pow(c.in(0), c.in(1)), c.in(0).dtype()); }

Value modulo(const Call& c) {
  return c.i("fmod") != 0 ? ops::fmod(c.in(0), c.in(1)) : ops::remainder(c.in(0), c.in(1));
}

Value shifted(const Call& c) {
  return c.s("direction") == "LEFT" ? ops::bitwise_left_shift(c.in(0), c.in(1))
                                    : ops::bitwise_right_shift(c.in(0), c.in(1));
}

Value clipped(const Call& c) {
  std::optional<Operand> low, high;
  if (c.version() < 11) {
    if (c.has_attr("min")) low = Operand(c.f("min"));
    if (c.has_attr("max")) high = Operand(c.f("max"));
  } else {
    if (c.has(1)) low = Operand(c.in(1));
    if (c.has(2)) high = Operand(c.in(2));
  }
  return low || high ? ops::clamp(c.in(0), low, high) : c.in(0);
}

Value infinite(const Call& c) {
  const bool low = c.i("detect_negative", 1) != 0, high = c.i("detect_positive", 1) != 0;
  if (low && high) return ops::isinf(c.in(0));
  if (low) return ops::isneginf(c.in(0));
  return high ? ops::isposinf(c.in(0)) : ops::full(c.in(0).shape(), 0, DType::kBool);
}

Value prelu(const Call& c) {
  const Value& x = c.in(0);
  return ops::where(ops::lt(x, 0), ops::mul(x, c.in(1)), x);
}

Value elu(const Value& x, double alpha, double gamma = 1) {
  const Value low = ops::mul(ops::expm1(x), gamma * alpha);
  return ops::where(ops::gt(x, 0), gamma == 1 ? x : ops::mul(x, gamma), low);
}

Value celu(const Call& c) {
  const double alpha = c.f("alpha", 1);
  return ops::add(ops::maximum(c.in(0), 0), ops::minimum(ops::mul(ops::expm1(ops::div(c.in(0), alpha)), alpha), 0));
}

Value hard_sigmoid(const Value& x, double alpha, double beta) {
  return ops::clamp(ops::add(ops::mul(x, alpha), beta), Operand(0.0), Operand(1.0));
}

Value shrunk(const Call& c) {
  const Value& x = c.in(0);
  const double lambda = c.f("lambd", 0.5), bias = c.f("bias");
  const Value zero = ops::zeros_like(x);
  const Value low = ops::where(ops::lt(x, -lambda), ops::add(x, bias), zero);
  return ops::cast(ops::where(ops::gt(x, lambda), ops::sub(x, bias), low), x.dtype());
}

Value swish(const Value& x, double alpha) { return ops::mul(x, ops::sigmoid(alpha == 1 ? x : ops::mul(x, alpha))); }

Value bits_as(const Call& c) {
  const DType to = c.dtype("to", DType::kFloat32);
  if (c.in(0).dtype() == to) return c.in(0);
  if (dtype_size(to) != dtype_size(c.in(0).dtype()))
    c.refuse("bits of {} as {}; both must be of one size", dtype_name(c.in(0).dtype()), dtype_name(to));
  return ops::copy(ops::view_as_dtype(c.in(0), to));
}

// In training elements are dropped; a model that is imported is one for inference unless it says otherwise itself.
Items dropout(const Call& c) {
  const Value& x = c.in(0);
  const double p = c.version() < 12 ? c.f("ratio", 0.5) : c.has(1) ? c.number(1) : 0.5;
  if (c.version() < 12 || !c.has(2) || c.integer(2) == 0 || p == 0)
    return {x, c.wants(1) ? ops::full(x.shape(), 1, c.version() < 12 && c.version() >= 10 ? DType::kBool : DType::kBool)
                          : Value()};
  const Generator::Draw draw = c.generator().next();
  const Value kept = ops::cast(ops::bernoulli(draw.state, x.shape(), 1 - p, DType::kFloat32, draw.salt), DType::kBool);
  return {ops::where(kept, ops::div(x, 1 - p), ops::zeros_like(x)), kept};
}

Entries activations() {
  return {
      {"Celu", celu},
      {"Dropout", dropout, 6},
      {"Elu", [](const Call& c) { return elu(c.in(0), c.f("alpha", 1)); }},
      {"Selu",
       [](const Call& c) {
         return elu(c.in(0), c.f("alpha", 1.67326319217681884765625), c.f("gamma", 1.05070102214813232421875));
       }},
      {"Gelu", [](const Call& c) { return ops::gelu(c.in(0), c.s("approximate", "none")); }},
      {"HardSigmoid", [](const Call& c) { return hard_sigmoid(c.in(0), c.f("alpha", 0.2), c.f("beta", 0.5)); }},
      {"LeakyRelu", [](const Call& c) { return ops::leaky_relu(c.in(0), c.f("alpha", 0.01)); }},
      {"Shrink", shrunk},
      {"SwiGLU", [](const Call& c) { return ops::mul(swish(c.in(0), c.f("alpha", 1)), c.in(1)); }},
      {"Swish", [](const Call& c) { return swish(c.in(0), c.f("alpha", 1)); }},
      {"ThresholdedRelu",
       [](const Call& c) { return ops::where(ops::gt(c.in(0), c.f("alpha", 1)), c.in(0), ops::zeros_like(c.in(0))); }},
  };
}

}  // namespace

Entries elementwise_entries() {
  Entries all = {
      {"Abs", unary(ops::abs)},
      {"Acos", unary(ops::acos)},
      {"Acosh", unary(ops::acosh)},
      {"Asin", unary(ops::asin)},
      {"Asinh", unary(ops::asinh)},
      {"Atan", unary(ops::atan)},
      {"Atanh", unary(ops::atanh)},
      {"BitwiseNot", unary(ops::bitwise_not)},
      {"Ceil", unary(ops::ceil)},
      {"Cos", unary(ops::cos)},
      {"Cosh", unary(ops::cosh)},
      {"Erf", unary(ops::erf)},
      {"Exp", unary(ops::exp)},
      {"Floor", unary(ops::floor)},
      {"HardSwish", unary(ops::hardswish)},
      {"Identity", [](const Call& c) -> Items { return c.item(0); }},
      {"IsNaN", unary(ops::isnan)},
      {"Log", unary(ops::log)},
      {"Mish", unary(ops::mish)},
      {"Neg", unary(ops::neg)},
      {"Not", unary(ops::logical_not)},
      {"Reciprocal", unary(ops::reciprocal)},
      {"Relu", unary(ops::relu)},
      {"Round", unary(ops::round)},
      {"Sigmoid", unary(ops::sigmoid)},
      {"Sign", unary(ops::sign)},
      {"Sin", unary(ops::sin)},
      {"Sinh", unary(ops::sinh)},
      {"Softplus", [](const Call& c) { return ops::logaddexp(c.in(0), ops::zeros_like(c.in(0))); }},
      {"Softsign", [](const Call& c) { return ops::div(c.in(0), ops::add(ops::abs(c.in(0)), 1)); }},
      {"Sqrt", unary(ops::sqrt)},
      {"Tan", unary(ops::tan)},
      {"Tanh", unary(ops::tanh)},

      {"Add", binary(ops::add)},
      {"And", binary(ops::logical_and)},
      {"BitShift", shifted},
      {"BitwiseAnd", binary(ops::bitwise_and)},
      {"BitwiseOr", binary(ops::bitwise_or)},
      {"BitwiseXor", binary(ops::bitwise_xor)},
      {"Div", quotient},
      {"Equal", binary(ops::eq)},
      {"Greater", binary(ops::gt)},
      {"GreaterOrEqual", binary(ops::ge)},
      {"Less", binary(ops::lt)},
      {"LessOrEqual", binary(ops::le)},
      {"Mod", modulo},
      {"Mul", binary(ops::mul)},
      {"Or", binary(ops::logical_or)},
      {"Pow", power},
      {"PRelu", prelu},
      {"Sub", binary(ops::sub)},
      {"Xor", binary(ops::logical_xor)},

      {"Max", folded(ops::maximum)},
      {"Min", folded(ops::minimum)},
      {"Sum", folded(ops::add)},
      {"Mean", [](const Call& c) { return ops::div(folded(ops::add)(c), static_cast<double>(c.size())); }},
      {"Where", [](const Call& c) { return ops::where(c.in(0), c.in(1), c.in(2)); }},

      {"Cast", [](const Call& c) { return ops::cast(c.in(0), c.dtype("to", DType::kFloat32)); }},
      {"CastLike", [](const Call& c) { return ops::cast(c.in(0), c.in(1).dtype()); }, 2},
      {"BitCast", bits_as},
      {"Clip", clipped, 6},
      {"IsInf", infinite},
  };
  for (Entry& entry : activations()) all.push_back(std::move(entry));
  return all;
}

}  // namespace sluice::onnx
