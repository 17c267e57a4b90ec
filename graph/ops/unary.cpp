// Primitives of one operand, and composites of them.
#include <cmath>
#include <numbers>

#include "graph/executor.h"
#include "graph/ops/activation.h"
#include "graph/ops/common.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"

namespace sluice::ops {
namespace {

std::vector<TensorType> infer_floating(Types in, Present, const Attrs&) {
  check_floating(in[0], "input");
  return {in[0]};
}

std::vector<TensorType> infer_number(Types in, Present, const Attrs&) {
  SLUICE_CHECK_KIND(kType, in[0].dtype != DType::kBool, "input: dtype is bool; must be a number (cast it first)");
  return {in[0]};
}

// Of steps: zeros, not nothing, as torch.
std::vector<Value> zero_gradient(const GradContext& c) { return {zeros_like(c.inputs[0])}; }

using Grad = std::vector<Value> (*)(const GradContext&);

// Samples lie in [low, high), where the function is smooth.
OpDef define(const char* name, const char* doc, Grad grad, double low, double high, bool floating = true) {
  OpDef op{.name = name, .doc = doc, .inputs = {"x"}};
  op.infer = floating ? infer_floating : infer_number;
  op.grad = grad;
  op.sbp = elementwise_sbp;
  for (const Shape& shape : {Shape{}, Shape{5}, Shape{3, 4}, Shape{2, 3, 2, 5}, Shape{0, 3}})
    op.samples.push_back({.inputs = {{.shape = shape, .low = low, .high = high}}});
  op.samples.push_back({.inputs = {{.shape = {4, 3}, .dtype = DType::kFloat64, .low = low, .high = high}}});
  if (!floating) op.samples.push_back({.inputs = {{.shape = {4, 3}, .dtype = DType::kInt32, .low = -5, .high = 5}}});
  return op;
}

OpDef linear(OpDef op) {
  op.sbp = linear_sbp;
  return op;
}

#define GRAD [](const GradContext& c) -> std::vector<Value>
#define G c.grad_outputs[0]
#define X c.inputs[0]
#define Y c.outputs[0]

const OpDef neg_def = linear(define(
    "neg", "-x. torch.neg; numbers of any dtype.", GRAD { return {neg(G)}; }, -1, 1, false));
const OpDef abs_def = define(
    "abs", "|x|. torch.abs; numbers of any dtype.", GRAD { return {mul(G, sign(X))}; }, 0.2, 1, false);
const OpDef sign_def = define("sign", "-1, 0 or 1. torch.sign.", zero_gradient, 0.2, 1, false);
const OpDef exp_def = define(
    "exp", "e to the x. torch.exp; floating.", GRAD { return {mul(G, Y)}; }, -1, 1);
const OpDef expm1_def = define(
    "expm1", "exp(x) - 1, accurate near 0. torch.expm1; floating.", GRAD { return {mul(G, add(Y, 1))}; }, -1, 1);
const OpDef log_def = define(
    "log", "Natural logarithm. torch.log; floating.", GRAD { return {div(G, X)}; }, 0.5, 2);
const OpDef log1p_def = define(
    "log1p", "log(1 + x), accurate near 0. torch.log1p; floating.", GRAD { return {div(G, add(X, 1))}; }, -0.5, 1);
const OpDef sqrt_def = define(
    "sqrt", "Square root. torch.sqrt; floating.", GRAD { return {div(G, mul(Y, 2))}; }, 0.5, 2);
const OpDef rsqrt_def = define(
    "rsqrt", "1 / sqrt(x). torch.rsqrt; floating.", GRAD { return {mul(G, mul(mul(mul(Y, Y), Y), -0.5))}; }, 0.5, 2);
const OpDef reciprocal_def = define(
    "reciprocal", "1 / x. torch.reciprocal; floating.", GRAD { return {neg(mul(G, mul(Y, Y)))}; }, 0.5, 2);
const OpDef sin_def = define(
    "sin", "Sine. torch.sin; floating.", GRAD { return {mul(G, cos(X))}; }, -2, 2);
const OpDef cos_def = define(
    "cos", "Cosine. torch.cos; floating.", GRAD { return {neg(mul(G, sin(X)))}; }, -2, 2);
const OpDef tanh_def = define(
    "tanh", "Hyperbolic tangent. torch.tanh; floating.", GRAD { return {tanh_backward(G, Y)}; }, -2, 2);
const OpDef erf_def = define(
    "erf", "Error function. torch.erf; floating.",
    GRAD {
      const double scale = 2 * std::numbers::inv_sqrtpi;
      return {mul(G, mul(exp(neg(mul(X, X))), scale))};
    },
    -2, 2);
const OpDef floor_def = define("floor", "Largest integer <= x. torch.floor.", zero_gradient, 0.1, 0.9, false);
const OpDef ceil_def = define("ceil", "Smallest integer >= x. torch.ceil.", zero_gradient, 0.1, 0.9, false);
const OpDef round_def =
    define("round", "Nearest integer, halves to even. torch.round.", zero_gradient, 0.6, 1.4, false);
const OpDef trunc_def = define("trunc", "Integer part. torch.trunc.", zero_gradient, 0.1, 0.9, false);

#undef GRAD
#undef G
#undef X
#undef Y

const OpDef* const kOps[] = {&neg_def,   &abs_def,  &sign_def,  &exp_def,        &expm1_def, &log_def,
                             &log1p_def, &sqrt_def, &rsqrt_def, &reciprocal_def, &sin_def,   &cos_def,
                             &tanh_def,  &erf_def,  &floor_def, &ceil_def,       &round_def, &trunc_def};

Value on_floating(const OpDef& op, const Value& x) { return call1(op, {to_floating(x)}); }

}  // namespace

std::span<const OpDef* const> unary_ops() { return kOps; }

Value neg(const Value& x) { return call1(neg_def, {x}); }
Value abs(const Value& x) { return call1(abs_def, {x}); }
Value sign(const Value& x) { return call1(sign_def, {x}); }
Value exp(const Value& x) { return on_floating(exp_def, x); }
Value expm1(const Value& x) { return on_floating(expm1_def, x); }
Value log(const Value& x) { return on_floating(log_def, x); }
Value log1p(const Value& x) { return on_floating(log1p_def, x); }
Value sqrt(const Value& x) { return on_floating(sqrt_def, x); }
Value rsqrt(const Value& x) { return on_floating(rsqrt_def, x); }
Value reciprocal(const Value& x) { return on_floating(reciprocal_def, x); }
Value sin(const Value& x) { return on_floating(sin_def, x); }
Value cos(const Value& x) { return on_floating(cos_def, x); }
Value tanh(const Value& x) { return on_floating(tanh_def, x); }
Value erf(const Value& x) { return on_floating(erf_def, x); }
Value floor(const Value& x) { return call1(floor_def, {x}); }
Value ceil(const Value& x) { return call1(ceil_def, {x}); }
Value round(const Value& x) { return call1(round_def, {x}); }
Value trunc(const Value& x) { return call1(trunc_def, {x}); }
Value square(const Value& x) { return mul(x, x); }
Value tan(const Value& x) { return div(sin(x), cos(x)); }

}  // namespace sluice::ops
