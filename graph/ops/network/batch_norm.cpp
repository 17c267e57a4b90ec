// Batch normalisation: training (with the batch's statistics), its backward, and inference.
#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/movement.h"
#include "graph/ops/norm_common.h"
#include "graph/ops/normalization.h"
#include "graph/ops/reduction.h"
#include "graph/tape.h"

namespace sluice::ops {
namespace {

Shape channels_of(const TensorType& x, const char* where) {
  check_floating(x, where);
  SLUICE_CHECK_KIND(kRuntime, x.shape.rank() >= 2, "{}: input has too few dims: {}; it must be (batch, channels, ...)",
                    where, x.shape.str());
  return {x.shape[1]};
}
Ints all_but_channels(int rank) {
  Ints axes = {0};
  for (int i = 2; i < rank; ++i) axes.push_back(i);
  return axes;
}
double count_per_channel(const Shape& x) { return x[1] == 0 ? 0 : static_cast<double>(numel(x) / x[1]); }

std::vector<TensorType> infer_train(Types in, Present present, const Attrs&) {
  const Shape c = channels_of(in[0], "batch_norm_train");
  check_affine(in, present, 1, "weight", c, "batch_norm_train");
  check_affine(in, present, 2, "bias", c, "batch_norm_train");
  SLUICE_CHECK(numel(in[0].shape) != c[0],
               "batch_norm_train: one value per channel: input is {}; training needs more than one", in[0].shape.str());
  const TensorType stats{stat_dtype(in[0].dtype), c};
  return {in[0], stats, stats};
}

// Through y by the fused op; through mean and var, which callers rarely differentiate, by their definitions.
std::vector<Value> grad_train(const GradContext& c) {
  const Value &x = c.inputs[0], &mean = c.outputs[1], &var = c.outputs[2];
  const Value weight = input_or_none(c.inputs, 1);
  std::vector<Value> grads(c.inputs.size());
  if (c.grad_outputs[0].defined()) {
    const Value inputs[] = {c.grad_outputs[0], x, mean, var, weight};
    auto d = call(batch_norm_backward_def, inputs, c.attrs);
    grads[0] = d[0];
    for (size_t i = 1; i < grads.size(); ++i)
      if (c.needs[i]) grads[i] = cast(d[i], c.inputs[i].dtype());
  }
  const double n = count_per_channel(x.shape());
  auto accumulate = [&](const Value& part) {
    const Value g = cast(part, x.dtype());
    grads[0] = grads[0].defined() ? add(grads[0], g) : g;
  };
  if (c.grad_outputs[1].defined()) accumulate(expand(per_channel(div(c.grad_outputs[1], n), x.rank()), x.shape()));
  if (c.grad_outputs[2].defined()) {
    const Value centred = sub(cast(x, mean.dtype()), per_channel(mean, x.rank()));
    accumulate(mul(centred, per_channel(mul(c.grad_outputs[2], 2 / n), x.rank())));
  }
  return grads;
}

std::vector<Value> decompose_train(std::span<const Value> in, const Attrs& a) {
  const Value x = cast(in[0], stat_dtype(in[0].dtype()));
  const Ints axes = all_but_channels(x.rank());
  const Value mean = ops::mean(x, axes, true), centred = sub(x, mean);
  const Value var = ops::mean(square(centred), axes, true);
  Value y = mul(centred, rsqrt(add(var, attr<double>(a, 0))));
  if (const Value w = input_or_none(in, 1); w.defined()) y = mul(y, per_channel(cast(w, x.dtype()), x.rank()));
  if (const Value b = input_or_none(in, 2); b.defined()) y = add(y, per_channel(cast(b, x.dtype()), x.rank()));
  const Ints flat = {x.shape()[1]};
  return {cast(y, in[0].dtype()), reshape(mean, flat), reshape(var, flat)};
}

std::vector<TensorType> infer_batch_norm_backward(Types in, Present present, const Attrs&) {
  const char* where = "batch_norm_backward";
  const Shape c = channels_of(in[1], where);
  SLUICE_CHECK_KIND(kRuntime, in[0] == in[1],
                    "{}: operands differ: grad is {}, x is {}; they must be equal in dtype and shape", where,
                    in[0].str(), in[1].str());
  const char* names[] = {"grad", "x", "mean", "var", "weight"};
  for (int i = 2; i < 5; ++i) check_affine(in, present, i, names[i], c, where);
  const TensorType stats{stat_dtype(in[1].dtype), c};
  return {in[1], stats, stats};
}

std::vector<Value> decompose_batch_norm_backward(std::span<const Value> in, const Attrs& a) {
  const DType dtype = stat_dtype(in[1].dtype());
  const int rank = in[1].rank();
  const Value dy = cast(in[0], dtype), x = cast(in[1], dtype);
  const Value inv_std = rsqrt(add(cast(in[3], dtype), attr<double>(a, 0)));
  const Value normal = mul(sub(x, per_channel(cast(in[2], dtype), rank)), per_channel(inv_std, rank));
  const Ints axes = all_but_channels(rank);
  const double n = count_per_channel(x.shape());
  const Value dw = sum(mul(dy, normal), axes), db = sum(dy, axes);
  Value scale = inv_std;
  if (const Value w = input_or_none(in, 4); w.defined()) scale = mul(scale, cast(w, dtype));
  const Value inner = sub(sub(dy, per_channel(div(db, n), rank)), mul(normal, per_channel(div(dw, n), rank)));
  return {cast(mul(inner, per_channel(scale, rank)), in[1].dtype()), dw, db};
}

std::vector<TensorType> infer_infer(Types in, Present present, const Attrs&) {
  const Shape c = channels_of(in[0], "batch_norm_infer");
  const char* names[] = {"x", "mean", "var", "weight", "bias"};
  for (int i = 1; i < 5; ++i) check_affine(in, present, i, names[i], c, "batch_norm_infer");
  return {in[0]};
}

std::vector<Value> decompose_infer(std::span<const Value> in, const Attrs& a) {
  const DType dtype = stat_dtype(in[0].dtype());
  const int rank = in[0].rank();
  Value scale = rsqrt(add(cast(in[2], dtype), attr<double>(a, 0)));
  if (const Value w = input_or_none(in, 3); w.defined()) scale = mul(scale, cast(w, dtype));
  Value y = mul(sub(cast(in[0], dtype), per_channel(cast(in[1], dtype), rank)), per_channel(scale, rank));
  if (const Value b = input_or_none(in, 4); b.defined()) y = add(y, per_channel(cast(b, dtype), rank));
  return {cast(y, in[0].dtype())};
}

std::vector<SbpRow> sbp_train(Types in, const Attrs&) {  // statistics need the whole batch: only channels may be split
  const auto c = Sbp::split(0);
  SbpRow split{{Sbp::split(1), c, c}, {Sbp::split(1), c, c}}, whole{std::vector<Sbp>(3), std::vector<Sbp>(3)};
  for (size_t i = 1; i < in.size(); ++i)
    if (in[i].shape.rank() == 0) split.inputs[i] = Sbp::broadcast();
  split.inputs.resize(in.size());
  whole.inputs.resize(in.size());
  return {split, whole};
}
std::vector<SbpRow> sbp_backward(Types in, const Attrs&) {
  const auto c = Sbp::split(0), x = Sbp::split(1);
  const bool weight = in.size() > 4 && in[4].shape.rank() == 1;
  SbpRow split{{x, x, c, c, weight ? c : Sbp::broadcast()}, {x, c, c}}, whole{std::vector<Sbp>(5), std::vector<Sbp>(3)};
  split.inputs.resize(in.size());
  whole.inputs.resize(in.size());
  return {split, whole};
}
std::vector<SbpRow> sbp_infer(Types in, const Attrs&) {
  std::vector<SbpRow> rows;
  for (int axis = -1; axis < in[0].shape.rank(); ++axis) {
    SbpRow row{std::vector<Sbp>(in.size()), {axis < 0 ? Sbp::broadcast() : Sbp::split(axis)}};
    row.inputs[0] = row.outputs[0];
    for (size_t i = 1; axis == 1 && i < in.size(); ++i)
      if (in[i].shape.rank() == 1) row.inputs[i] = Sbp::split(0);
    rows.push_back(row);
  }
  return rows;
}

const Param kEps{.name = "eps", .default_value = 1e-5};
const SampleInput kVar3{.shape = {3}, .low = 0.5, .high = 1.5};

}  // namespace

const OpDef batch_norm_train_def{
    .name = "batch_norm_train",
    .doc = "Normalises each channel by the batch's mean and variance: y, mean, biased variance. x is (N, C, ...).",
    .inputs = {"x", "weight?", "bias?"},
    .params = {kEps},
    .num_outputs = 3,
    .infer = infer_train,
    .grad = grad_train,
    .decompose = decompose_train,
    .sbp = sbp_train,
    .cost = norm_cost,
    .samples = {
        {{{{4, 3, 2, 5}}, {{3}}, {{3}}}},
        {{{{5, 3}}, {{3}}, {{3}}}},
        {{{{4, 3, 6}}, kAbsent, kAbsent}, {1e-3}},
        {{{{2, 20, 3, 3}}, {{20}}, {{20}}}},
    }};

const OpDef batch_norm_backward_def{.name = "batch_norm_backward",
                                    .doc = "Gradients of batch_norm_train's y with respect to x, weight and bias.",
                                    .inputs = {"grad", "x", "mean", "var", "weight?"},
                                    .params = {kEps},
                                    .num_outputs = 3,
                                    .infer = infer_batch_norm_backward,
                                    .decompose = decompose_batch_norm_backward,
                                    .sbp = sbp_backward,
                                    .cost = norm_cost,
                                    .samples = {
                                        {{{{4, 3, 2, 5}}, {{4, 3, 2, 5}}, {{3}}, kVar3, {{3}}}},
                                        {{{{5, 3}}, {{5, 3}}, {{3}}, kVar3, kAbsent}},
                                    }};

const OpDef batch_norm_infer_def{
    .name = "batch_norm_infer",
    .doc =
        "Normalises each channel by given statistics: (x - mean) / sqrt(var + eps) * weight + bias. x is (N, C, ...).",
    .inputs = {"x", "mean", "var", "weight?", "bias?"},
    .params = {kEps},
    .infer = infer_infer,
    .decompose = decompose_infer,
    .sbp = sbp_infer,
    .cost = norm_cost,
    .samples = {
        {{{{4, 3, 2, 5}}, {{3}}, kVar3, {{3}}, {{3}}}},
        {{{{5, 3}}, {{3}}, kVar3, kAbsent, kAbsent}},
    }};

BatchNormResult batch_norm(const Value& x, const BatchNormOptions& o) {
  SLUICE_CHECK_KIND(
      kRuntime, o.training || (o.running_mean.defined() && o.running_var.defined()),
      "batch_norm: no running statistics: input is {}; pass running_mean and running_var, or training = true",
      x.shape().str());
  if (!o.training) {
    return {call1(batch_norm_infer_def, {x, o.running_mean, o.running_var, o.weight, o.bias}, {o.eps}), {}, {}};
  }
  const Value inputs[] = {x, o.weight, o.bias};
  auto out = call(batch_norm_train_def, inputs, {o.eps});
  BatchNormResult result{out[0], {}, {}};
  const double n = count_per_channel(x.shape());
  // As in torch, with Bessel's correction of the variance; statistics that are infinite stay so.
  GradMode no_grad(false);
  auto update = [&](const Value& running, const Value& batch) {
    return add(mul(running, 1 - o.momentum), mul(cast(batch, running.dtype()), o.momentum));
  };
  if (o.running_mean.defined()) result.running_mean = update(o.running_mean, out[1]);
  if (o.running_var.defined()) result.running_var = update(o.running_var, mul(out[2], n / (n - 1)));
  return result;
}

}  // namespace sluice::ops
