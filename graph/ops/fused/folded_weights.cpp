#include "graph/ops/folded_weights.h"

#include <algorithm>

#include "graph/ops/common.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/movement.h"
#include "graph/ops/norm_common.h"
#include "graph/ops/reduction.h"

namespace sluice::ops {
namespace {

namespace w_in = fold_weight_input;
namespace b_in = fold_bias_input;

DType fold_result(const Attrs& attrs) { return attr<DType>(attrs, fold_attr::kDType); }

// Checks the attributes, and operands that have an element per channel.
void check_fold(const char* op, Types in, Present present, const Attrs& attrs, const std::vector<int>& rows,
                int64_t channels) {
  const DType dtype = fold_result(attrs);
  SLUICE_CHECK(is_floating(dtype), "{}: dtype: got {}; must be floating", op, dtype_name(dtype));
  for (const int i : rows) {
    if (!present[i]) continue;
    SLUICE_CHECK_KIND(kRuntime, is_floating(in[i].dtype) && in[i].shape == Shape({channels}),
                      "{}: operand {} does not fit: {}; must be floating, of {} channels", op, i, in[i].str(),
                      channels);
  }
}

// The channels that a weight has along an axis.
int64_t channels_along(const char* op, const Shape& weight, const Attrs& attrs) {
  const auto axis = attr<int64_t>(attrs, fold_attr::kAxis), groups = attr<int64_t>(attrs, fold_attr::kGroups);
  SLUICE_CHECK(axis == 0 || axis == 1, "{}: axis: got {}; must be 0 or 1", op, axis);
  SLUICE_CHECK_KIND(kRuntime, weight.rank() >= 2 && groups >= 1 && weight[0] % groups == 0,
                    "{}: groups do not divide the weight's rows: groups {}, weight {}; it must have rows and columns, "
                    "and a multiple of the groups as rows",
                    op, groups, weight.str());
  return axis == 0 ? weight[0] : weight[1] * groups;
}

std::vector<TensorType> infer_fold_weight(Types in, Present present, const Attrs& attrs) {
  const char* op = "fold_weight";
  const TensorType& weight = in[w_in::kWeight];
  SLUICE_CHECK_KIND(kType, is_floating(weight.dtype), "{}: weight: got {}; must be floating", op, weight.str());
  SLUICE_CHECK_KIND(kRuntime, present[w_in::kVar] || !present[w_in::kScale], "{}: var is absent; scale needs it", op);
  check_fold(op, in, present, attrs, {w_in::kVar, w_in::kScale}, channels_along(op, weight.shape, attrs));
  return {{fold_result(attrs), weight.shape}};
}

std::vector<TensorType> infer_fold_bias(Types in, Present present, const Attrs& attrs) {
  const char* op = "fold_bias";
  const bool weight = present[b_in::kWeight];
  SLUICE_CHECK_KIND(kRuntime, present[b_in::kMean] == present[b_in::kVar] && (!weight || present[b_in::kMean]),
                    "{}: mean and var: one of them is absent; a weight needs both", op);
  const std::vector<int> norm = {b_in::kMean, b_in::kVar, b_in::kScale, b_in::kShift};
  if (weight) {
    const Shape& shape = in[b_in::kWeight].shape;
    check_fold(op, in, present, attrs, norm, channels_along(op, shape, attrs));
    check_fold(op, in, present, attrs, {b_in::kBias}, shape[0]);
    return {{fold_result(attrs), {shape[0]}}};
  }
  const int first = present[b_in::kBias] ? b_in::kBias : b_in::kMean;
  SLUICE_CHECK_KIND(kRuntime, present[first] && in[first].shape.rank() == 1,
                    "{}: neither a bias nor a mean; one of them must be a row", op);
  const int64_t channels = in[first].shape[0];
  check_fold(op, in, present, attrs, norm, channels);
  check_fold(op, in, present, attrs, {b_in::kBias}, channels);
  return {{fold_result(attrs), {channels}}};
}

// The dtype that it is computed in.
DType fold_compute(std::span<const Value> in, const Attrs& attrs) {
  const bool wide = fold_result(attrs) == DType::kFloat64 || std::any_of(in.begin(), in.end(), [](const Value& v) {
                      return v.defined() && v.dtype() == DType::kFloat64;
                    });
  return wide ? DType::kFloat64 : DType::kFloat32;
}

// factor * scale / sqrt(var + eps); undefined without var.
Value fold_coefficient(const Value& var, const Value& scale, DType dtype, const Attrs& attrs) {
  if (!var.defined()) return {};
  Value s = rsqrt(add(cast(var, dtype), attr<double>(attrs, fold_attr::kEps)));
  if (scale.defined()) s = mul(s, cast(scale, dtype));
  return mul(s, attr<double>(attrs, fold_attr::kFactor));
}

// A weight as (groups, rows of a group, columns, the rest), and a row of its channels along an axis beside that.
Value fold_grouped(const Value& weight, int64_t groups) {
  const Shape s = weight.shape();
  int64_t rest = 1;
  for (int i = 2; i < s.rank(); ++i) rest *= s[i];
  return reshape(weight, {groups, s[0] / groups, s[1], rest});
}
Value fold_beside(const Value& row, const Shape& grouped, int64_t axis) {
  return reshape(row, axis == 0 ? Ints{grouped[0], grouped[1], 1, 1} : Ints{grouped[0], 1, grouped[2], 1});
}

std::vector<Value> decompose_fold_weight(std::span<const Value> in, const Attrs& attrs) {
  const DType dtype = fold_compute(in, attrs);
  const Value w = fold_grouped(cast(in[w_in::kWeight], dtype), attr<int64_t>(attrs, fold_attr::kGroups));
  const Value s = fold_coefficient(input_or_none(in, w_in::kVar), input_or_none(in, w_in::kScale), dtype, attrs);
  const Value scaled = s.defined() ? mul(w, fold_beside(s, w.shape(), attr<int64_t>(attrs, fold_attr::kAxis)))
                                   : mul(w, attr<double>(attrs, fold_attr::kFactor));
  return {cast(reshape(scaled, in[w_in::kWeight].shape().vec()), fold_result(attrs))};
}

std::vector<Value> decompose_fold_bias(std::span<const Value> in, const Attrs& attrs) {
  const DType dtype = fold_compute(in, attrs);
  const auto given = [&](int i) {
    const Value v = input_or_none(in, static_cast<size_t>(i));
    return v.defined() ? cast(v, dtype) : v;
  };
  const double factor = attr<double>(attrs, fold_attr::kFactor);
  const Value s = fold_coefficient(given(b_in::kVar), given(b_in::kScale), dtype, attrs);
  const Value bias = given(b_in::kBias), mean = given(b_in::kMean), shift = given(b_in::kShift);
  Value b;
  if (const Value weight = given(b_in::kWeight); weight.defined()) {
    const Value w = fold_grouped(weight, attr<int64_t>(attrs, fold_attr::kGroups));
    Value t = neg(mul(mean, s));
    if (shift.defined()) t = add(t, shift);
    b = reshape(sum(mul(w, fold_beside(t, w.shape(), 1)), Ints{2, 3}), {weight.shape()[0]});
    if (bias.defined()) b = add(b, bias);
  } else if (s.defined()) {
    b = mul(bias.defined() ? sub(bias, mean) : neg(mean), s);
    if (shift.defined()) b = add(b, mul(shift, factor));
  } else {
    b = mul(bias, factor);
  }
  return {cast(b, fold_result(attrs))};
}

std::vector<SbpRow> sbp_fold(Types in, const Attrs&) {
  return {{std::vector<Sbp>(in.size(), Sbp::broadcast()), {Sbp::broadcast()}}};
}

const std::vector<Param> kFoldParams = {{.name = "eps", .default_value = 1e-5},
                                        {.name = "factor", .default_value = 1.0},
                                        {.name = "axis", .default_value = int64_t{0}},
                                        {.name = "groups", .default_value = int64_t{1}},
                                        {.name = "dtype", .default_value = DType::kFloat32}};
Attrs fold_attrs(double factor, int64_t axis, int64_t groups, DType dtype = DType::kFloat32) {
  return {1e-3, factor, axis, groups, dtype};
}

SampleInput var_of(int64_t channels) { return {.shape = {channels}, .low = 0.5, .high = 1.5}; }

const OpDef fold_weight_def{
    .name = "fold_weight",
    .doc =
        "weight * factor * scale / sqrt(var + eps), a channel being a row (axis 0) or a column (axis 1) of the "
        "weight: what a convolution or product multiplies by where a norm or a number is a part of it. What "
        "compiling makes of weights.",
    .inputs = {"weight", "var?", "scale?"},
    .params = kFoldParams,
    .infer = infer_fold_weight,
    .decompose = decompose_fold_weight,
    .sbp = sbp_fold,
    .samples = {
        {{{{4, 3, 3, 3}}, var_of(4), {{4}}}, fold_attrs(1, 0, 1)},
        {{{{4, 3, 2}}, var_of(6), kAbsent}, fold_attrs(1, 1, 2)},
        {{{{5, 7}}, var_of(7), {{7}}}, fold_attrs(1, 1, 1, DType::kFloat64)},
        {{{{6, 1, 2, 2, 3}}, kAbsent, kAbsent}, fold_attrs(0.5, 0, 3)},
        {{{{0, 3}}, var_of(0), {{0}}}, fold_attrs(1, 0, 1)},
    }};

const OpDef fold_bias_def{
    .name = "fold_bias",
    .doc =
        "(bias - mean) * s + factor * shift with s = factor * scale / sqrt(var + eps), for a norm behind a "
        "convolution or product; with its weight, bias + weight * (shift - mean * s), for one in front of it. What "
        "compiling makes of weights.",
    .inputs = {"bias?", "mean?", "var?", "scale?", "shift?", "weight?"},
    .params = kFoldParams,
    .infer = infer_fold_bias,
    .decompose = decompose_fold_bias,
    .sbp = sbp_fold,
    .samples = {
        {{{{4}}, {{4}}, var_of(4), {{4}}, {{4}}, kAbsent}, fold_attrs(1, 0, 1)},
        {{kAbsent, {{4}}, var_of(4), kAbsent, kAbsent, kAbsent}, fold_attrs(2, 0, 1)},
        {{{{5}}, kAbsent, kAbsent, kAbsent, kAbsent, kAbsent}, fold_attrs(-0.5, 0, 1, DType::kFloat64)},
        {{{{4}}, {{6}}, var_of(6), {{6}}, {{6}}, {{4, 3, 2}}}, fold_attrs(1, 1, 2)},
        {{kAbsent, {{7}}, var_of(7), kAbsent, {{7}}, {{5, 7}}}, fold_attrs(1, 1, 1)},
    }};

}  // namespace

const OpDef& fold_weight_op() { return fold_weight_def; }
const OpDef& fold_bias_op() { return fold_bias_def; }
bool folds_weights(const OpDef& op) { return &op == &fold_weight_def || &op == &fold_bias_def; }

std::span<const OpDef* const> folded_weights_ops() {
  static const OpDef* const ops[] = {&fold_weight_def, &fold_bias_def};
  return ops;
}

}  // namespace sluice::ops
