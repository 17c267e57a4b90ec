#include "graph/ops/activation.h"

#include <cmath>
#include <numbers>

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/composed.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/elementwise/scalar_def.h"

namespace sluice::ops {
namespace {

const double kInvSqrt2 = 1 / std::numbers::sqrt2;
const double kSqrt2OverPi = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
constexpr double kCubic = 0.044715;  // of the tanh approximation of gelu

std::vector<TensorType> infer_floating(Types in, Present, const Attrs& attrs) {
  check_floating(in[0], "input");
  check_same_dtype(in, "inputs");
  for (const TensorType& t : in)
    SLUICE_CHECK(t.shape == in[0].shape, "inputs: shapes differ: {} and {}; they must be equal", in[0].shape.str(),
                 t.shape.str());
  if (!attrs.empty()) {
    const std::string& kind = attr<std::string>(attrs, 0);
    SLUICE_CHECK_KIND(kRuntime, kind == "none" || kind == "tanh",
                      "approximate: unknown: '{}'; must be 'none' or 'tanh'", kind);
  }
  return {in[0]};
}

// Infers an analytic function, which complex numbers have too.
std::vector<TensorType> infer_analytic(Types in, Present present, const Attrs& attrs) {
  if (!is_complex(in[0].dtype)) return infer_floating(in, present, attrs);
  check_same_dtype(in, "inputs");
  return {in[0]};
}

// relu_backward is linear in grad, and so on.
std::vector<SbpRow> backward_sbp(Types in, const Attrs& attrs) {
  std::vector<SbpRow> rows = elementwise_sbp(in, attrs);
  rows.push_back(row_of({Sbp::partial_sum(), Sbp::broadcast()}, Sbp::partial_sum()));
  return rows;
}

std::vector<Sample> samples(int inputs, double low, double high, const std::vector<Attrs>& variants) {
  std::vector<Sample> out;
  for (const Attrs& attrs : variants)
    for (const Shape& shape : {Shape{}, Shape{7}, Shape{3, 4}, Shape{2, 3, 2, 2}, Shape{0, 3}})
      out.push_back(
          {.inputs = std::vector<SampleInput>(inputs, {.shape = shape, .low = low, .high = high}), .attrs = attrs});
  return out;
}

Value gelu_cdf(const Value& x) { return mul(add(erf(mul(x, kInvSqrt2)), 1), 0.5); }
Value gelu_inner(const Value& x) { return mul(mul(x, kSqrt2OverPi), add(mul(mul(x, x), kCubic), 1)); }

std::vector<Value> gelu_decompose(std::span<const Value> in, const Attrs& attrs) {
  const Value& x = in[0];
  if (attr<std::string>(attrs, 0) == "none") return {mul(x, gelu_cdf(x))};
  return {mul(mul(x, 0.5), add(tanh(gelu_inner(x)), 1))};
}

std::vector<Value> gelu_backward_decompose(std::span<const Value> in, const Attrs& attrs) {
  const Value &g = in[0], &x = in[1];
  const Value xx = mul(x, x);
  if (attr<std::string>(attrs, 0) == "none") {
    const Value density = mul(exp(mul(xx, -0.5)), kInvSqrt2 * std::numbers::inv_sqrtpi);
    return {mul(g, add(gelu_cdf(x), mul(x, density)))};
  }
  const Value t = tanh(gelu_inner(x));
  const Value slope = mul(add(mul(xx, 3 * kCubic), 1), kSqrt2OverPi);
  const Value right = mul(mul(x, sub(1, mul(t, t))), slope);
  return {mul(g, mul(add(add(t, 1), right), 0.5))};
}

std::vector<Value> silu_backward_decompose(std::span<const Value> in, const Attrs&) {
  const Value &g = in[0], &x = in[1];
  const Value s = sigmoid(x);
  return {mul(g, mul(s, add(mul(x, sub(1, s)), 1)))};
}

const std::vector<Attrs> kPlain = {{}};
const std::vector<Attrs> kGelu = {{std::string("none")}, {std::string("tanh")}};

// Derives an op from its entry in base/scalar; `simpler` computes the same with simpler ops for devices without a
// kernel.
ScalarDef activation(const char* name, const char* doc, Range x, ScalarGrad grad, Value (*simpler)(const Value& x)) {
  ScalarDef def = unary_def(name, doc, elementwise_sbp, x, grad);
  def.op.decompose = [simpler](std::span<const Value> in, const Attrs&) -> std::vector<Value> {
    return {simpler(in[0])};
  };
  return def;
}

const ScalarDef relu_def = activation(
    "relu", "max(x, 0). torch.relu; numbers of any dtype.", {0.1, 1},
    [](const GradContext& c) -> std::vector<Value> { return {relu_backward(c.grad_outputs[0], c.outputs[0])}; },
    [](const Value& x) { return maximum(x, 0); });
const ScalarDef sigmoid_def = activation(
    "sigmoid", "1 / (1 + exp(-x)). torch.sigmoid; floating.", {-2, 2},
    [](const GradContext& c) -> std::vector<Value> { return {sigmoid_backward(c.grad_outputs[0], c.outputs[0])}; },
    [](const Value& x) { return reciprocal(add(exp(neg(x)), 1)); });
const ScalarDef silu_def = activation(
    "silu", "x * sigmoid(x). torch.nn.functional.silu; floating.", {-2, 2},
    [](const GradContext& c) -> std::vector<Value> { return {silu_backward(c.grad_outputs[0], c.inputs[0])}; },
    [](const Value& x) { return mul(x, sigmoid(x)); });
Value within_six(const Value& x) { return minimum(maximum(x, 0), 6); }

// As torch, the first derivative at 0 is that from below, and the second is 0.
constexpr double kSeluScale = 1.0507009873554805, kSeluLowest = 1.7580993408473766;
const ScalarDef selu_def = activation(
    "selu", "1.0507 * (x where positive, else 1.6733 * (exp(x) - 1)). torch.selu; floating.", {0.2, 2},
    [](const GradContext& c) -> std::vector<Value> {
      const Value &g = c.grad_outputs[0], &x = c.inputs[0];
      const Value below = lt(x, 0), slope = mul(exp(where(below, x, 0.0)), kSeluLowest);
      return {mul(g, where(below, slope, where(eq(x, 0), full_like(x, kSeluLowest), kSeluScale)))};
    },
    [](const Value& x) {
      const Value below = le(x, 0);
      return where(below, mul(expm1(where(below, x, 0.0)), kSeluLowest), mul(x, kSeluScale));
    });
const ScalarDef relu6_def = activation(
    "relu6", "min(max(x, 0), 6). torch.nn.functional.relu6; numbers of any dtype.", {0.2, 4},
    [](const GradContext& c) -> std::vector<Value> {
      const Value &g = c.grad_outputs[0], &x = c.inputs[0];
      return {where(logical_or(le(x, 0), ge(x, 6)), 0.0, g)};
    },
    &within_six);
const ScalarDef hardsigmoid_def = activation(
    "hardsigmoid", "min(max(x / 6 + 1 / 2, 0), 1). torch.nn.functional.hardsigmoid; floating.", {-2, 2},
    [](const GradContext& c) -> std::vector<Value> {
      const Value &g = c.grad_outputs[0], &x = c.inputs[0];
      return {where(logical_and(gt(x, -3), lt(x, 3)), div(g, 6), 0.0)};
    },
    [](const Value& x) { return div(within_six(add(x, 3)), 6); });
const ScalarDef hardswish_def = activation(
    "hardswish", "x * hardsigmoid(x). torch.nn.functional.hardswish; floating.", {-2, 2},
    [](const GradContext& c) -> std::vector<Value> {
      const Value &g = c.grad_outputs[0], &x = c.inputs[0];
      return {where(le(x, -3), 0.0, where(lt(x, 3), mul(g, add(div(x, 3), 0.5)), g))};
    },
    [](const Value& x) { return div(mul(x, within_six(add(x, 3))), 6); });
const ScalarDef prelu_def = [] {
  ScalarDef def = binary_def("prelu", "x where positive, else weight * x, broadcast. torch.prelu; floating.",
                             elementwise_sbp, {-1, -0.2}, {0.2, 1}, [](const GradContext& c) -> std::vector<Value> {
                               const Value &g = c.grad_outputs[0], &x = c.inputs[0], &weight = c.inputs[1];
                               const Value positive = gt(x, 0);
                               return {c.needs[0] ? where(positive, g, mul(weight, g)) : Value(),
                                       c.needs[1] ? where(positive, 0.0, mul(x, g)) : Value()};
                             });
  def.op.decompose = [](std::span<const Value> in, const Attrs&) -> std::vector<Value> {
    return {where(gt(in[0], 0), in[0], mul(in[1], in[0]))};
  };
  return def;
}();
const OpDef gelu_def{
    .name = "gelu",
    .doc = "x * Phi(x), Phi the normal distribution's; approximate: 'none' or 'tanh'. torch.nn.functional.gelu.",
    .inputs = {"x"},
    .params = {{"approximate", std::string("none")}},
    .infer = infer_floating,
    .grad = [](const GradContext& c) -> std::vector<Value> {
      return {gelu_backward(c.grad_outputs[0], c.inputs[0], attr<std::string>(c.attrs, 0))};
    },
    .decompose = gelu_decompose,
    .sbp = elementwise_sbp,
    .samples = samples(1, -2, 2, kGelu)};

const OpDef relu_backward_def{
    .name = "relu_backward",
    .doc = "0 where result <= 0, else grad (also of NaN): the gradient of relu from its result.",
    .inputs = {"grad", "result"},
    .infer = infer_floating,
    .grad = [](const GradContext& c) -> std::vector<Value> {
      return {relu_backward(c.grad_outputs[0], c.inputs[1]), Value()};
    },
    .decompose = [](std::span<const Value> in, const Attrs&) -> std::vector<Value> {
      return {where(le(in[1], 0), 0.0, in[0])};
    },
    .sbp = backward_sbp,
    .samples = samples(2, 0.1, 1, kPlain)};
const OpDef sigmoid_backward_def{.name = "sigmoid_backward",
                                 .doc = "grad * result * (1 - result): the gradient of sigmoid from its result.",
                                 .inputs = {"grad", "result"},
                                 .infer = infer_analytic,
                                 .decompose = [](std::span<const Value> in, const Attrs&) -> std::vector<Value> {
                                   return {mul(in[0], mul(in[1], sub(1, in[1])))};
                                 },
                                 .sbp = backward_sbp,
                                 .samples = samples(2, 0.1, 0.9, kPlain)};
const OpDef tanh_backward_def{.name = "tanh_backward",
                              .doc = "grad * (1 - result^2): the gradient of tanh from its result.",
                              .inputs = {"grad", "result"},
                              .infer = infer_analytic,
                              .decompose = [](std::span<const Value> in, const Attrs&) -> std::vector<Value> {
                                return {mul(in[0], sub(1, mul(in[1], in[1])))};
                              },
                              .sbp = backward_sbp,
                              .samples = samples(2, -0.9, 0.9, kPlain)};
const OpDef silu_backward_def{.name = "silu_backward",
                              .doc = "The gradient of silu from its input.",
                              .inputs = {"grad", "x"},
                              .infer = infer_floating,
                              .decompose = silu_backward_decompose,
                              .sbp = backward_sbp,
                              .samples = samples(2, -2, 2, kPlain)};
const OpDef gelu_backward_def{.name = "gelu_backward",
                              .doc = "The gradient of gelu from its input.",
                              .inputs = {"grad", "x"},
                              .params = {{"approximate", std::string("none")}},
                              .infer = infer_floating,
                              .decompose = gelu_backward_decompose,
                              .sbp = backward_sbp,
                              .samples = samples(2, -2, 2, kGelu)};

}  // namespace

std::span<const OpDef* const> activation_ops() {
  static const OpDef* const ops[] = {&relu_def.op,       &sigmoid_def.op,    &silu_def.op,          &prelu_def.op,
                                     &relu6_def.op,      &selu_def.op,       &hardsigmoid_def.op,   &hardswish_def.op,
                                     &gelu_def,          &relu_backward_def, &sigmoid_backward_def, &tanh_backward_def,
                                     &silu_backward_def, &gelu_backward_def};
  return ops;
}

Value relu(const Value& x) { return call1(relu_def.op, {x}); }
Value sigmoid(const Value& x) { return call_scalar(sigmoid_def, x); }
Value silu(const Value& x) { return call1(silu_def.op, {x}); }
Value prelu(const Value& x, const Value& weight) { return call_scalar(prelu_def, x, weight); }
Value gelu(const Value& x, const std::string& approximate) { return call1(gelu_def, {x}, {approximate}); }
Value relu_backward(const Value& grad, const Value& result) { return call1(relu_backward_def, {grad, result}); }
Value sigmoid_backward(const Value& grad, const Value& result) { return call1(sigmoid_backward_def, {grad, result}); }
Value tanh_backward(const Value& grad, const Value& result) { return call1(tanh_backward_def, {grad, result}); }
Value silu_backward(const Value& grad, const Value& x) {
  const Value operands[] = {grad, x};
  return is_complex(x.dtype()) ? silu_backward_decompose(operands, {})[0] : call1(silu_backward_def, {grad, x});
}
Value gelu_backward(const Value& grad, const Value& x, const std::string& approximate) {
  return call1(gelu_backward_def, {grad, x}, {approximate});
}

Value leaky_relu(const Value& x, double negative_slope) {
  return call_scalar(prelu_def, is_floating(x.dtype()) ? x : cast(x, DType::kFloat32), Operand(negative_slope));
}

Value elu(const Value& x, double alpha, double steepness) {
  // The exponential sees only the negative part, so that it cannot overflow where its result is not used.
  const Value negative = lt(x, 0), exponent = where(negative, x, 0.0);
  const Value curve = mul(expm1(steepness == 1 ? exponent : mul(exponent, steepness)), alpha);
  // As torch, the first derivative at 0 is that from below, and the second is 0.
  const double slope = alpha * steepness;
  return where(negative, curve, std::abs(slope - 1) < 1e-15 ? x : mul(x, where(eq(x, 0), full_like(x, slope), 1.0)));
}

Value softplus(const Value& x, double beta, double threshold) {
  const Value scaled = mul(x, beta);
  const Value linear = gt(scaled, threshold);
  return where(linear, x, div(log1p(exp(where(linear, 0.0, scaled))), beta));
}

Value mish(const Value& x) { return mul(x, tanh(softplus(x))); }

Value logsigmoid(const Value& x) {
  // Beyond the threshold log1p(exp(-x)) is -x to the last bit of the dtype.
  return neg(softplus(neg(x), 1, x.dtype() == DType::kFloat64 ? 40 : 20));
}

Value clamp(const Value& x, const std::optional<Operand>& min, const std::optional<Operand>& max) {
  SLUICE_CHECK(min || max, "clamp: no bound: min and max are both absent; give at least one");
  const DType dtype = promote(min ? result_dtype(x, *min) : x.dtype(), max ? result_dtype(x, *max) : x.dtype());
  for (const auto& bound : {min, max})
    if (bound && bound->is_number()) bound->check_fits(dtype, "clamp");
  const Value y = cast(x, dtype);
  if (min && max) return clamp_between(y, min->to(dtype), max->to(dtype));
  return min ? clamp_min(y, *min) : clamp_max(y, *max);
}

Value hardtanh(const Value& x, double min_val, double max_val) {
  SLUICE_CHECK(min_val <= max_val, "hardtanh: min_val {} is above max_val {}; it must not be", min_val, max_val);
  const auto bound = [&](double v) { return is_floating(x.dtype()) ? Operand(v) : Operand(static_cast<int64_t>(v)); };
  const Operand low = bound(min_val), high = bound(max_val);
  for (const Operand& v : {low, high}) v.check_fits(x.dtype(), "hardtanh");
  if (is_floating(x.dtype())) return hardtanh_of_floats(x, min_val, max_val);
  return where(le(x, low), low, where(ge(x, high), high, x));
}
Value relu6(const Value& x) { return call_scalar(relu6_def, x); }
Value hardsigmoid(const Value& x) { return call_scalar(hardsigmoid_def, x); }
Value hardswish(const Value& x) { return call_scalar(hardswish_def, x); }
Value selu(const Value& x) { return call_scalar(selu_def, x); }

}  // namespace sluice::ops
