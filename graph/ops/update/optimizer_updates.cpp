#include "graph/ops/optimizer_updates.h"

#include <cmath>

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/norm_common.h"

namespace sluice::ops {
namespace {

void check_tensors(Types in, int count, const char* where, const char* names) {
  check_floating(in[0], where);
  for (int i = 1; i < count; ++i) {
    SLUICE_CHECK(in[i] == in[0],
                 "{}: operands differ: param is {}, operand {} is {}; {} must be equal in dtype and shape", where,
                 in[0].str(), i, in[i].str(), names);
  }
}
void check_scalar(const TensorType& t, bool integer, const char* where, const char* name) {
  SLUICE_CHECK(t.shape.rank() == 0 && (is_floating(t.dtype) || (integer && t.dtype == DType::kInt64)),
               "{}: {} is not a scalar: {}; it must be 0-d, of a float dtype{}", where, name, t.str(),
               integer ? " or int64" : "");
}

std::vector<TensorType> infer_sgd(Types in, Present, const Attrs&) {
  check_tensors(in, 2, "sgd_update", "param and grad");
  check_scalar(in[2], false, "sgd_update", "lr");
  return {in[0]};
}
std::vector<TensorType> infer_momentum(Types in, Present present, const Attrs&) {
  check_tensors(in, 3, "sgd_momentum_update", "param, grad and momentum_buffer");
  check_scalar(in[3], false, "sgd_momentum_update", "lr");
  if (in.size() > 4 && present[4]) check_scalar(in[4], true, "sgd_momentum_update", "step");
  return {in[0], in[0]};
}
std::vector<TensorType> infer_adam(Types in, Present, const Attrs&) {
  check_tensors(in, 4, "adam_update", "param, grad, exp_avg and exp_avg_sq");
  check_scalar(in[4], true, "adam_update", "step");
  check_scalar(in[5], false, "adam_update", "lr");
  return {in[0], in[0], in[0]};
}
std::vector<TensorType> infer_amsgrad(Types in, Present, const Attrs&) {
  check_tensors(in, 5, "amsgrad_update", "param, grad, exp_avg, exp_avg_sq and max_exp_avg_sq");
  check_scalar(in[5], true, "amsgrad_update", "step");
  check_scalar(in[6], false, "amsgrad_update", "lr");
  return {in[0], in[0], in[0], in[0]};
}

Value decayed(const Value& grad, const Value& param, double weight_decay) {
  return weight_decay == 0 ? grad : add(grad, mul(param, weight_decay));
}

// Computed in float32 for 16-bit parameters, and cast back.
std::vector<Value> upcast(std::span<const Value> in, int tensors) {
  std::vector<Value> v(in.begin(), in.end());
  for (int i = 0; i < tensors; ++i) v[i] = cast(v[i], stat_dtype(in[0].dtype()));
  return v;
}
std::vector<Value> downcast(std::vector<Value> out, DType dtype) {
  for (auto& v : out) v = cast(v, dtype);
  return out;
}

// sgd: weight_decay, maximize. momentum: momentum, dampening, weight_decay, nesterov, maximize.
std::vector<Value> decompose_sgd(std::span<const Value> in, const Attrs& a) {
  const auto v = upcast(in, 2);
  const Value g = decayed(attr<bool>(a, 1) ? neg(v[1]) : v[1], v[0], attr<double>(a, 0));
  return downcast({sub(v[0], mul(g, cast(v[2], g.dtype())))}, in[0].dtype());
}
std::vector<Value> decompose_momentum(std::span<const Value> in, const Attrs& a) {
  const auto v = upcast(in, 3);
  const double momentum = attr<double>(a, 0), dampening = attr<double>(a, 1);
  const Value g = decayed(attr<bool>(a, 4) ? neg(v[1]) : v[1], v[0], attr<double>(a, 2));
  Value buffer = add(mul(v[2], momentum), mul(g, 1 - dampening));
  if (const Value step = input_or_none(in, 4); step.defined()) buffer = where(le(step, 1), g, buffer);
  const Value d = attr<bool>(a, 3) ? add(g, mul(buffer, momentum)) : buffer;
  return downcast({sub(v[0], mul(d, cast(v[3], d.dtype()))), buffer}, in[0].dtype());
}

// adam, amsgrad: beta1, beta2, eps, weight_decay, decoupled, maximize.
std::vector<Value> decompose_adam_as(std::span<const Value> in, const Attrs& a, bool amsgrad) {
  const int tensors = amsgrad ? 5 : 4;
  const auto v = upcast(in, tensors);
  const DType dtype = v[0].dtype();
  const double beta1 = attr<double>(a, 0), beta2 = attr<double>(a, 1), eps = attr<double>(a, 2),
               wd = attr<double>(a, 3);
  const Value step = cast(v[tensors], DType::kFloat64), lr = cast(v[tensors + 1], DType::kFloat64);
  const Value correction1 = sub(1.0, exp(mul(step, std::log(beta1)))),
              correction2 = sub(1.0, exp(mul(step, std::log(beta2))));
  Value p = v[0], g = attr<bool>(a, 5) ? neg(v[1]) : v[1];
  if (attr<bool>(a, 4))
    p = mul(p, cast(sub(1.0, mul(lr, wd)), dtype));
  else
    g = decayed(g, p, wd);
  const Value m = lerp(v[2], g, 1 - beta1), s = add(mul(v[3], beta2), mul(square(g), 1 - beta2));
  const Value peak = amsgrad ? maximum(v[4], s) : s;
  const Value denominator = add(div(sqrt(peak), cast(sqrt(correction2), dtype)), eps);
  p = sub(p, mul(div(m, denominator), cast(div(lr, correction1), dtype)));
  std::vector<Value> out = {p, m, s};
  if (amsgrad) out.push_back(peak);
  return downcast(out, in[0].dtype());
}

// Elementwise over the leading kTensors operands; scalars everywhere. All of them but the gradient come out.
template <int kTensors>
std::vector<SbpRow> sbp_of(Types in, const Attrs&) {
  std::vector<SbpRow> rows = {{std::vector<Sbp>(in.size()), std::vector<Sbp>(kTensors - 1)}};
  for (int axis = 0; axis < in[0].shape.rank(); ++axis) {
    SbpRow row{std::vector<Sbp>(in.size()), std::vector<Sbp>(kTensors - 1, Sbp::split(axis))};
    for (int i = 0; i < kTensors; ++i) row.inputs[i] = Sbp::split(axis);
    rows.push_back(row);
  }
  return rows;
}
Cost cost(Types in, Types out, const Attrs&) {
  return {4 * static_cast<double>(numel(out[0].shape) * static_cast<int64_t>(out.size())), operand_bytes(in, out)};
}

const Param kDecay{.name = "weight_decay", .default_value = 0.0}, kMaximize{.name = "maximize", .default_value = false};
const std::vector<Param> kMomentumParams = {{.name = "momentum", .default_value = 0.0},
                                            {.name = "dampening", .default_value = 0.0},
                                            kDecay,
                                            {.name = "nesterov", .default_value = false},
                                            kMaximize};
const std::vector<Param> kAdamParams = {
    {.name = "beta1", .default_value = 0.9},       {.name = "beta2", .default_value = 0.999},
    {.name = "eps", .default_value = 1e-8},        kDecay,
    {.name = "decoupled", .default_value = false}, kMaximize};
const SampleInput kTensor{.shape = {3, 7}}, kPositive{.shape = {3, 7}, .low = 0.1, .high = 1};
const SampleInput kLr{.shape = {}, .low = 0.01, .high = 0.1};
const SampleInput kStep{.shape = {}, .dtype = DType::kInt64, .low = 1, .high = 5};

const OpDef sgd_update_def{.name = "sgd_update",
                           .doc = "A step of gradient descent without momentum: param'.",
                           .inputs = {"param", "grad", "lr"},
                           .params = {kDecay, kMaximize},
                           .infer = infer_sgd,
                           .decompose = decompose_sgd,
                           .sbp = sbp_of<2>,
                           .cost = cost,
                           .samples = {{{kTensor, kTensor, kLr}}, {{kTensor, kTensor, kLr}, {0.1, true}}}};

const OpDef sgd_momentum_update_def{
    .name = "sgd_momentum_update",
    .doc =
        "A step of gradient descent with momentum (torch.optim.SGD): param', momentum_buffer'. With step 1 the buffer "
        "becomes the gradient.",
    .inputs = {"param", "grad", "momentum_buffer", "lr", "step?"},
    .params = kMomentumParams,
    .num_outputs = 2,
    .infer = infer_momentum,
    .decompose = decompose_momentum,
    .sbp = sbp_of<3>,
    .cost = cost,
    .samples = {{{kTensor, kTensor, kTensor, kLr, kAbsent}, {0.9, 0.0, 0.0, false, false}},
                {{kTensor, kTensor, kTensor, kLr, kAbsent}, {0.9, 0.0, 0.01, true, true}},
                {{kTensor, kTensor, kTensor, kLr, kStep}, {0.9, 0.5, 0.0, false, false}}}};

const OpDef adam_update_def{
    .name = "adam_update",
    .doc = "A step of Adam, or AdamW when `decoupled` (torch.optim): param', exp_avg', exp_avg_sq'.",
    .inputs = {"param", "grad", "exp_avg", "exp_avg_sq", "step", "lr"},
    .params = kAdamParams,
    .num_outputs = 3,
    .infer = infer_adam,
    .decompose = [](std::span<const Value> in, const Attrs& a) { return decompose_adam_as(in, a, false); },
    .sbp = sbp_of<4>,
    .cost = cost,
    .samples = {{{kTensor, kTensor, kTensor, kPositive, kStep, kLr}},
                {{kTensor, kTensor, kTensor, kPositive, kStep, kLr}, {0.8, 0.95, 1e-6, 0.1, true, true}},
                {{kTensor, kTensor, kTensor, kPositive, kStep, kLr}, {0.9, 0.999, 1e-8, 0.1, false, false}}}};

const OpDef amsgrad_update_def{
    .name = "amsgrad_update",
    .doc = "A step of AMSGrad (torch.optim.Adam with amsgrad): param', exp_avg', exp_avg_sq', max_exp_avg_sq'.",
    .inputs = {"param", "grad", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step", "lr"},
    .params = kAdamParams,
    .num_outputs = 4,
    .infer = infer_amsgrad,
    .decompose = [](std::span<const Value> in, const Attrs& a) { return decompose_adam_as(in, a, true); },
    .sbp = sbp_of<5>,
    .cost = cost,
    .samples = {{{kTensor, kTensor, kTensor, kPositive, kPositive, kStep, kLr}}}};

}  // namespace

std::vector<Value> sgd_update(const SgdInputs& in, const SgdOptions& o) {
  if (o.momentum == 0) {
    const Value inputs[] = {in.param, in.grad, in.lr};
    return call(sgd_update_def, inputs, {o.weight_decay, o.maximize});
  }
  SLUICE_CHECK(in.momentum_buffer.defined(),
               "sgd_update: no momentum_buffer: momentum is {}; pass a buffer of zeros shaped as param", o.momentum);
  SLUICE_CHECK(!o.nesterov || o.dampening == 0, "sgd_update: nesterov with dampening: {}; dampening must be 0",
               o.dampening);
  SLUICE_CHECK(o.dampening == 0 || in.step.defined(),
               "sgd_update: no step: dampening is {}; pass the number of the step, from 1", o.dampening);
  const Value inputs[] = {in.param, in.grad, in.momentum_buffer, in.lr, o.dampening == 0 ? Value() : in.step};
  return call(sgd_momentum_update_def, inputs, {o.momentum, o.dampening, o.weight_decay, o.nesterov, o.maximize});
}

std::vector<Value> adam_update(const AdamInputs& in, const AdamOptions& o) {
  std::vector<Value> inputs = {in.param, in.grad, in.exp_avg, in.exp_avg_sq};
  if (in.max_exp_avg_sq.defined()) inputs.push_back(in.max_exp_avg_sq);
  inputs.push_back(in.step);
  inputs.push_back(in.lr);
  return call(in.max_exp_avg_sq.defined() ? amsgrad_update_def : adam_update_def, inputs,
              {o.beta1, o.beta2, o.eps, o.weight_decay, o.decoupled, o.maximize});
}

std::span<const OpDef* const> optimizer_updates_ops() {
  static const OpDef* const defs[] = {&sgd_update_def, &sgd_momentum_update_def, &adam_update_def, &amsgrad_update_def};
  return defs;
}

}  // namespace sluice::ops
