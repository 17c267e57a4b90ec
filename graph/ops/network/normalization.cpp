#include "graph/ops/normalization.h"

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/movement.h"
#include "graph/ops/norm_common.h"
#include "graph/ops/reduction.h"

namespace sluice::ops {

void check_affine(Types in, Present present, int index, const char* name, const Shape& shape, const char* where) {
  if (index >= static_cast<int>(in.size()) || !present[index]) return;
  const DType x = in[0].dtype, got = in[index].dtype;
  SLUICE_CHECK_KIND(kRuntime, in[index].shape == shape && (got == x || got == stat_dtype(x)),
                    "{}: {} does not fit: {}; input {} asks for {}", where, name, in[index].str(), in[0].str(),
                    TensorType{x, shape}.str());
}

Value per_channel(const Value& v, int rank) {
  Ints shape(rank, 1);
  shape[1] = v.shape()[0];
  return reshape(v, shape);
}

Cost norm_cost(Types in, Types out, const Attrs&) {
  return {8 * static_cast<double>(numel(out[0].shape)), operand_bytes(in, out)};
}

namespace {

extern const OpDef layer_norm_backward_def, rms_norm_backward_def, group_norm_backward_def;

// layer_norm and rms_norm: params normalized_shape, eps.
Shape check_normalized(const TensorType& x, const Attrs& a, const char* where) {
  check_floating(x, where);
  const Shape shape(attr<Ints>(a, 0));
  const int tail = shape.rank();
  SLUICE_CHECK_KIND(kRuntime,
                    tail >= 1 && tail <= x.shape.rank() && std::equal(shape.begin(), shape.end(), x.shape.end() - tail),
                    "{}: normalized_shape does not fit: {} for input {}; it must equal the input's last dims", where,
                    shape.str(), x.shape.str());
  return shape;
}
Ints last_axes(int rank, int count) {
  Ints axes;
  for (int i = rank - count; i < rank; ++i) axes.push_back(i);
  return axes;
}
Ints leading_axes(int count) {
  Ints axes;
  for (int i = 0; i < count; ++i) axes.push_back(i);
  return axes;
}
// Sums over the axes, which may be none.
Value sum_over(const Value& x, const Ints& axes) { return axes.empty() ? x : sum(x, axes); }

std::vector<TensorType> infer_layer(Types in, Present present, const Attrs& a) {
  const Shape shape = check_normalized(in[0], a, "layer_norm");
  check_affine(in, present, 1, "weight", shape, "layer_norm");
  check_affine(in, present, 2, "bias", shape, "layer_norm");
  return {in[0]};
}
std::vector<TensorType> infer_rms(Types in, Present present, const Attrs& a) {
  check_affine(in, present, 1, "weight", check_normalized(in[0], a, "rms_norm"), "rms_norm");
  return {in[0]};
}
std::vector<TensorType> infer_layer_backward(Types in, Present present, const Attrs& a) {
  const Shape shape = check_normalized(in[1], a, "layer_norm_backward");
  SLUICE_CHECK_KIND(kRuntime, in[0] == in[1],
                    "layer_norm_backward: operands differ: grad is {}, x is {}; they must be equal", in[0].str(),
                    in[1].str());
  check_affine(in, present, 2, "weight", shape, "layer_norm_backward");
  const TensorType sums{stat_dtype(in[1].dtype), shape};
  return {in[1], sums, sums};
}
std::vector<TensorType> infer_rms_backward(Types in, Present present, const Attrs& a) {
  auto types = infer_layer_backward(in, present, a);
  types.pop_back();
  return types;
}

struct Normal {
  Value x_hat, inv;  // normalised x, and what it was scaled by
};
Normal normalise(const Value& x, const Ints& axes, double eps, bool centre) {
  const Value centred = centre ? sub(x, mean(x, axes, true)) : x;
  const Value inv = rsqrt(add(mean(square(centred), axes, true), eps));
  return {mul(centred, inv), inv};
}
// Gradient through the normalisation over `axes`, from that of x_hat.
Value through(const Normal& n, const Value& g, const Ints& axes, bool centre) {
  Value inner = sub(g, mul(n.x_hat, mean(mul(g, n.x_hat), axes, true)));
  if (centre) inner = sub(inner, mean(g, axes, true));
  return mul(inner, n.inv);
}

std::vector<Value> decompose_over_last(std::span<const Value> in, const Attrs& a, bool centre) {
  const DType dtype = stat_dtype(in[0].dtype());
  Value y = normalise(cast(in[0], dtype), last_axes(in[0].rank(), static_cast<int>(attr<Ints>(a, 0).size())),
                      attr<double>(a, 1), centre)
                .x_hat;
  if (const Value w = input_or_none(in, 1); w.defined()) y = mul(y, cast(w, dtype));
  if (const Value b = input_or_none(in, 2); b.defined()) y = add(y, cast(b, dtype));
  return {cast(y, in[0].dtype())};
}
std::vector<Value> decompose_over_last_backward(std::span<const Value> in, const Attrs& a, bool centre) {
  const DType dtype = stat_dtype(in[1].dtype());
  const int rank = in[1].rank(), tail = static_cast<int>(attr<Ints>(a, 0).size());
  const Ints axes = last_axes(rank, tail), rows = leading_axes(rank - tail);
  const Value dy = cast(in[0], dtype);
  const Normal n = normalise(cast(in[1], dtype), axes, attr<double>(a, 1), centre);
  const Value w = input_or_none(in, 2);
  const Value g = w.defined() ? mul(dy, cast(w, dtype)) : dy;
  std::vector<Value> out = {cast(through(n, g, axes, centre), in[1].dtype()), sum_over(mul(dy, n.x_hat), rows)};
  if (centre) out.push_back(sum_over(dy, rows));
  return out;
}

// The gradients of the forward ops with inputs x, weight?, bias?: calls `backward` on (dy, x, weight) and casts the
// results.
std::vector<Value> grad_by(const OpDef& backward, const GradContext& c) {
  const Value inputs[] = {c.grad_outputs[0], c.inputs[0], input_or_none(c.inputs, 1)};
  auto d = call(backward, inputs, c.attrs);
  std::vector<Value> grads(c.inputs.size());
  for (size_t i = 0; i < grads.size(); ++i)
    if (c.needs[i]) grads[i] = cast(d[i], c.inputs[i].dtype());
  return grads;
}

// group_norm: params num_groups, eps.
void check_groups(const TensorType& x, const Attrs& a, const char* where) {
  check_floating(x, where);
  const int64_t groups = attr<int64_t>(a, 0);
  SLUICE_CHECK_KIND(kRuntime, x.shape.rank() >= 2, "{}: input has too few dims: {}; it must be (batch, channels, ...)",
                    where, x.shape.str());
  SLUICE_CHECK_KIND(kRuntime, groups >= 1 && x.shape[1] % groups == 0,
                    "{}: num_groups does not divide the channels: {} for input {}; input.shape[1] must be a multiple",
                    where, groups, x.shape.str());
}
std::vector<TensorType> infer_group(Types in, Present present, const Attrs& a) {
  check_groups(in[0], a, "group_norm");
  const Shape c = {in[0].shape[1]};
  check_affine(in, present, 1, "weight", c, "group_norm");
  check_affine(in, present, 2, "bias", c, "group_norm");
  return {in[0]};
}
std::vector<TensorType> infer_group_backward(Types in, Present present, const Attrs& a) {
  check_groups(in[1], a, "group_norm_backward");
  SLUICE_CHECK_KIND(kRuntime, in[0] == in[1],
                    "group_norm_backward: operands differ: grad is {}, x is {}; they must be equal", in[0].str(),
                    in[1].str());
  const Shape c = {in[1].shape[1]};
  check_affine(in, present, 2, "weight", c, "group_norm_backward");
  const TensorType sums{stat_dtype(in[1].dtype), c};
  return {in[1], sums, sums};
}
Ints grouped_shape(const Shape& x, int64_t groups) {
  return {x[0], groups, x[0] * groups == 0 ? 0 : numel(x) / (x[0] * groups)};
}
std::vector<Value> decompose_group(std::span<const Value> in, const Attrs& a) {
  const DType dtype = stat_dtype(in[0].dtype());
  const Shape& s = in[0].shape();
  const Value x = reshape(cast(in[0], dtype), grouped_shape(s, attr<int64_t>(a, 0)));
  Value y = reshape(normalise(x, {2}, attr<double>(a, 1), true).x_hat, s.vec());
  if (const Value w = input_or_none(in, 1); w.defined()) y = mul(y, per_channel(cast(w, dtype), s.rank()));
  if (const Value b = input_or_none(in, 2); b.defined()) y = add(y, per_channel(cast(b, dtype), s.rank()));
  return {cast(y, in[0].dtype())};
}
std::vector<Value> decompose_group_backward(std::span<const Value> in, const Attrs& a) {
  const DType dtype = stat_dtype(in[1].dtype());
  const Shape& s = in[1].shape();
  const Ints split = grouped_shape(s, attr<int64_t>(a, 0));
  Ints axes = {0};
  for (int i = 2; i < s.rank(); ++i) axes.push_back(i);
  const Value dy = cast(in[0], dtype), w = input_or_none(in, 2);
  const Normal n = normalise(reshape(cast(in[1], dtype), split), {2}, attr<double>(a, 1), true);
  const Value g = w.defined() ? mul(dy, per_channel(cast(w, dtype), s.rank())) : dy;
  const Value dx = reshape(through(n, reshape(g, split), {2}, true), s.vec());
  return {cast(dx, in[1].dtype()), sum(mul(dy, reshape(n.x_hat, s.vec())), axes), sum(dy, axes)};
}

// Rows are independent: leading axes may be split; sums over rows are then partial.
std::vector<SbpRow> sbp_rows(Types in, const Attrs& a) {
  std::vector<SbpRow> rows = {{std::vector<Sbp>(in.size()), {Sbp::broadcast()}}};
  const int leading =
      std::holds_alternative<Ints>(a[0]) ? in[0].shape.rank() - static_cast<int>(attr<Ints>(a, 0).size()) : 1;
  for (int i = 0; i < leading; ++i) {
    SbpRow row{std::vector<Sbp>(in.size()), {Sbp::split(i)}};
    row.inputs[0] = Sbp::split(i);
    rows.push_back(row);
  }
  return rows;
}
template <int kOutputs>
std::vector<SbpRow> sbp_rows_backward(Types in, const Attrs& a) {
  auto rows = sbp_rows(in, a);
  for (auto& row : rows) {
    row.inputs[1] = row.inputs[0];
    row.outputs.resize(kOutputs, row.outputs[0] == Sbp::broadcast() ? Sbp::broadcast() : Sbp::partial_sum());
  }
  return rows;
}

const Param kShape{.name = "normalized_shape", .default_value = Ints{}, .required = true};
const Param kGroups{.name = "num_groups", .default_value = int64_t{1}, .required = true};
const Param kEps{.name = "eps", .default_value = 1e-5};

const OpDef layer_norm_def{
    .name = "layer_norm",
    .doc = "Normalises over the last dims to mean 0 and variance 1, then scales and shifts (torch layer_norm).",
    .inputs = {"x", "weight?", "bias?"},
    .params = {kShape, kEps},
    .infer = infer_layer,
    .grad = [](const GradContext& c) { return grad_by(layer_norm_backward_def, c); },
    .decompose = [](std::span<const Value> in, const Attrs& a) { return decompose_over_last(in, a, true); },
    .sbp = sbp_rows,
    .cost = norm_cost,
    .samples =
        {
            {{{{4, 6}}, {{6}}, {{6}}}, {Ints{6}, 1e-5}},
            {{{{2, 3, 4, 5}}, {{4, 5}}, {{4, 5}}}, {Ints{4, 5}, 1e-3}},
            {{{{3, 37}}, kAbsent, kAbsent}, {Ints{37}, 1e-5}},
        }};

const OpDef layer_norm_backward_def{
    .name = "layer_norm_backward",
    .doc = "Gradients of layer_norm with respect to x, weight and bias.",
    .inputs = {"grad", "x", "weight?"},
    .params = {kShape, kEps},
    .num_outputs = 3,
    .infer = infer_layer_backward,
    .decompose = [](std::span<const Value> in, const Attrs& a) { return decompose_over_last_backward(in, a, true); },
    .sbp = sbp_rows_backward<3>,
    .cost = norm_cost,
    .samples = {
        {{{{4, 6}}, {{4, 6}}, {{6}}}, {Ints{6}, 1e-5}},
        {{{{2, 3, 4}}, {{2, 3, 4}}, kAbsent}, {Ints{3, 4}, 1e-5}},
    }};

const OpDef rms_norm_def{
    .name = "rms_norm",
    .doc = "Divides by the root of the mean square over the last dims, then scales (torch rms_norm).",
    .inputs = {"x", "weight?"},
    .params = {kShape, kEps},
    .infer = infer_rms,
    .grad = [](const GradContext& c) { return grad_by(rms_norm_backward_def, c); },
    .decompose = [](std::span<const Value> in, const Attrs& a) { return decompose_over_last(in, a, false); },
    .sbp = sbp_rows,
    .cost = norm_cost,
    .samples = {{{{{4, 6}}, {{6}}}, {Ints{6}, 1e-5}}, {{{{2, 3, 4}}, kAbsent}, {Ints{3, 4}, 1e-3}}}};

const OpDef rms_norm_backward_def{
    .name = "rms_norm_backward",
    .doc = "Gradients of rms_norm with respect to x and weight.",
    .inputs = {"grad", "x", "weight?"},
    .params = {kShape, kEps},
    .num_outputs = 2,
    .infer = infer_rms_backward,
    .decompose = [](std::span<const Value> in, const Attrs& a) { return decompose_over_last_backward(in, a, false); },
    .sbp = sbp_rows_backward<2>,
    .cost = norm_cost,
    .samples = {{{{{4, 6}}, {{4, 6}}, {{6}}}, {Ints{6}, 1e-5}}}};

const OpDef group_norm_def{
    .name = "group_norm",
    .doc = "Normalises each group of channels of each sample, then scales and shifts per channel (torch group_norm).",
    .inputs = {"x", "weight?", "bias?"},
    .params = {kGroups, kEps},
    .infer = infer_group,
    .grad = [](const GradContext& c) { return grad_by(group_norm_backward_def, c); },
    .decompose = decompose_group,
    .sbp = sbp_rows,
    .cost = norm_cost,
    .samples = {{{{{2, 6, 3, 2}}, {{6}}, {{6}}}, {int64_t{3}, 1e-5}},
                {{{{3, 4}}, kAbsent, kAbsent}, {int64_t{2}, 1e-3}}}};

const OpDef group_norm_backward_def{.name = "group_norm_backward",
                                    .doc = "Gradients of group_norm with respect to x, weight and bias.",
                                    .inputs = {"grad", "x", "weight?"},
                                    .params = {kGroups, kEps},
                                    .num_outputs = 3,
                                    .infer = infer_group_backward,
                                    .decompose = decompose_group_backward,
                                    .sbp = sbp_rows_backward<3>,
                                    .cost = norm_cost,
                                    .samples = {{{{{2, 6, 3, 2}}, {{2, 6, 3, 2}}, {{6}}}, {int64_t{3}, 1e-5}}}};

}  // namespace

Value layer_norm(const Value& x, const Ints& normalized_shape, const Value& weight, const Value& bias, double eps) {
  return call1(layer_norm_def, {x, weight, bias}, {normalized_shape, eps});
}
Value rms_norm(const Value& x, const Ints& normalized_shape, const Value& weight, double eps) {
  if (is_complex(x.dtype())) {
    const Value operands[] = {x, weight};
    check_normalized(TensorType{to_real(x.dtype()), x.shape()}, {normalized_shape, eps}, "rms_norm");
    return decompose_over_last(operands, {normalized_shape, eps}, false)[0];
  }
  return call1(rms_norm_def, {x, weight}, {normalized_shape, eps});
}
Value group_norm(const Value& x, int64_t num_groups, const Value& weight, const Value& bias, double eps) {
  return call1(group_norm_def, {x, weight, bias}, {num_groups, eps});
}

std::span<const OpDef* const> normalization_ops() {
  static const OpDef* const defs[] = {&batch_norm_train_def,  &batch_norm_backward_def, &batch_norm_infer_def,
                                      &layer_norm_def,        &layer_norm_backward_def, &rms_norm_def,
                                      &rms_norm_backward_def, &group_norm_def,          &group_norm_backward_def};
  return defs;
}

}  // namespace sluice::ops
