#include "graph/ops/comparison.h"

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/elementwise/scalar_def.h"
#include "graph/ops/reduction.h"

namespace sluice::ops {
namespace {

std::vector<TensorType> infer_where(Types in, Present, const Attrs&) {
  SLUICE_CHECK_KIND(kType, in[0].dtype == DType::kBool, "condition: dtype is {}; must be bool",
                    dtype_name(in[0].dtype));
  check_same_dtype(in.subspan(1), "operands");
  const Shape ab = broadcast_shapes(in[1].shape, in[2].shape, "operands");
  return {{in[1].dtype, broadcast_shapes(in[0].shape, ab, "condition")}};
}

SampleInput sample_input(Shape shape, DType dtype) {
  const bool floating = is_floating(dtype);
  return {.shape = shape, .dtype = dtype, .low = floating ? -1.0 : 0.0, .high = floating ? 1.0 : 3.0};
}

#define COMPARE(NAME, DOC) \
  const ScalarDef NAME##_def = discrete_def(#NAME, DOC, {DType::kFloat32, DType::kInt64, DType::kBool});
#define LOGIC(NAME, DOC) \
  const ScalarDef NAME##_def = discrete_def(#NAME, DOC, {DType::kBool, DType::kFloat32, DType::kInt32});
// clang-format off

COMPARE(eq, "a == b as bool, broadcast. torch.eq.")
COMPARE(ne, "a != b as bool, broadcast. torch.ne.")
COMPARE(lt, "a < b as bool, broadcast. torch.lt.")
COMPARE(le, "a <= b as bool, broadcast. torch.le.")
COMPARE(gt, "a > b as bool, broadcast. torch.gt.")
COMPARE(ge, "a >= b as bool, broadcast. torch.ge.")
LOGIC(logical_and, "Both are non-zero. torch.logical_and.")
LOGIC(logical_or, "Either is non-zero. torch.logical_or.")
LOGIC(logical_xor, "Exactly one is non-zero. torch.logical_xor.")
COMPARE(logical_not, "x is zero. torch.logical_not.")
COMPARE(isnan, "x is not a number. torch.isnan.")
COMPARE(isinf, "x is plus or minus infinity. torch.isinf.")
COMPARE(isposinf, "x is plus infinity. torch.isposinf.")
COMPARE(isneginf, "x is minus infinity. torch.isneginf.")
COMPARE(signbit, "x has its sign bit set: negative, or -0. torch.signbit.")

// clang-format on
#undef LOGIC
#undef COMPARE

#define UNARY(NAME) {&NAME##_def.op, &ops::NAME, nullptr},
#define BINARY(NAME) {&NAME##_def.op, nullptr, &ops::NAME},
#include "base/scalar/names.inc"
const TensorFunction kComparisonFunctions[] = {
#include "base/scalar/comparison.inc"
};
#include "base/scalar/undefine.inc"

std::vector<SbpRow> where_sbp(Types in, const Attrs& attrs) {
  std::vector<SbpRow> rows = elementwise_sbp(in, attrs);
  rows.push_back(row_of({Sbp::broadcast(), Sbp::partial_sum(), Sbp::partial_sum()}, Sbp::partial_sum()));
  return rows;
}

std::vector<Sample> where_samples() {
  std::vector<Sample> out;
  const auto add = [&](Shape c, Shape a, Shape b, DType dtype) {
    out.push_back({.inputs = {sample_input(c, DType::kBool), sample_input(a, dtype), sample_input(b, dtype)}});
    out.back().inputs[0].high = 2;
  };
  add({}, {}, {}, DType::kFloat32);
  add({3, 4}, {3, 4}, {3, 4}, DType::kFloat32);
  add({4}, {3, 4}, {}, DType::kFloat32);
  add({3, 1}, {}, {4}, DType::kFloat32);
  add({2, 3, 4}, {1, 4}, {3, 1}, DType::kInt64);
  add({0, 3}, {3}, {}, DType::kFloat32);
  return out;
}

const OpDef where_def{
    .name = "where",
    .doc = "a where cond, else b; all three broadcast. cond is bool, a and b have one dtype. torch.where.",
    .inputs = {"cond", "a", "b"},
    .infer = infer_where,
    .grad = [](const GradContext& c) -> Values {
      const Value &g = c.grad_outputs[0], &cond = c.inputs[0];
      return {Value(), c.needs[1] ? sum_to(where(cond, g, 0.0), c.inputs[1].shape()) : Value(),
              c.needs[2] ? sum_to(where(cond, 0.0, g), c.inputs[2].shape()) : Value()};
    },
    .sbp = where_sbp,
    .samples = where_samples()};

std::vector<SbpRow> cast_sbp(Types in, const Attrs& attrs) {
  // Rounding each part does not round the sum, so partial sums stay only among floating dtypes that widen.
  const bool widens = is_floating(in[0].dtype) && is_floating(attr<DType>(attrs, 0)) &&
                      dtype_size(in[0].dtype) <= dtype_size(attr<DType>(attrs, 0));
  return widens ? linear_sbp(in, attrs) : elementwise_sbp(in, attrs);
}

const OpDef cast_def{
    .name = "cast",
    .doc = "The values as `dtype`; floating to integer truncates, to bool tests for non-zero. torch.Tensor.to.",
    .inputs = {"x"},
    .params = {{.name = "dtype", .default_value = DType::kFloat32, .required = true}},
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      return {{attr<DType>(attrs, 0), in[0].shape}};
    },
    .grad = [](const GradContext& c) -> Values {
      const DType dtype = c.inputs[0].dtype();
      return {is_differentiable(dtype) ? cast(c.grad_outputs[0], dtype) : Value()};
    },
    .sbp = cast_sbp,
    .samples = {{.inputs = {{.shape = {3, 4}}}, .attrs = {DType::kFloat64}},
                {.inputs = {{.shape = {3, 4}, .dtype = DType::kFloat64}}, .attrs = {DType::kFloat32}},
                {.inputs = {{.shape = {3, 4}, .low = -9, .high = 9}}, .attrs = {DType::kInt32}},
                {.inputs = {{.shape = {2, 3}, .dtype = DType::kInt64, .low = -2, .high = 2}}, .attrs = {DType::kBool}},
                {.inputs = {{.shape = {5}, .dtype = DType::kBool, .low = 0, .high = 2}}, .attrs = {DType::kFloat32}},
                {.inputs = {{.shape = {0, 3}}}, .attrs = {DType::kFloat64}}}};

}  // namespace

#define UNARY(NAME) \
  Value NAME(const Value& x) { return call_scalar(NAME##_def, x); }
#define BINARY(NAME) \
  Value NAME(const Operand& a, const Operand& b) { return call_scalar(NAME##_def, a, b); }
#include "base/scalar/names.inc"
//
#include "base/scalar/comparison.inc"
//
#include "base/scalar/undefine.inc"

std::span<const TensorFunction> comparison_functions() { return kComparisonFunctions; }
std::span<const OpDef* const> selection_ops() {
  static const OpDef* const ops[] = {&where_def, &cast_def};
  return ops;
}

Value isfinite(const Value& x) { return logical_not(logical_or(isnan(x), isinf(x))); }

Value bitwise_not(const Value& x) { return x.dtype() == DType::kBool ? logical_not(x) : bitwise_xor(x, -1); }

Value where(const Value& cond, const Operand& a, const Operand& b) {
  const auto [x, y] = promoted(a, b);
  return call1(where_def, {cond, x, y});
}

Value masked_fill(const Value& x, const Value& mask, const Operand& value) {
  if (value.is_number()) value.check_fits(x.dtype(), "masked_fill");
  SLUICE_CHECK_KIND(kRuntime, value.is_number() || value.value().rank() == 0,
                    "masked_fill: value has shape {}; only a 0-dimensional tensor is supported",
                    value.value().shape().str());
  return call1(where_def, {mask, value.to(x.dtype()), x});
}

Value cast(const Value& x, DType dtype) { return x.dtype() == dtype ? x : call1(cast_def, {x}, {dtype}); }

}  // namespace sluice::ops
