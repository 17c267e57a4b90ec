#include "graph/ops/comparison.h"

#include <limits>

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/reduction.h"

namespace sluice::ops {
namespace {

using Values = std::vector<Value>;

std::vector<TensorType> infer_compare(Types in, Present, const Attrs&) {
  check_same_dtype(in, "operands");
  return {{DType::kBool, broadcast_shapes(in[0].shape, in[1].shape, "operands")}};
}

std::vector<TensorType> infer_bitwise(Types in, Present, const Attrs&) {
  check_same_dtype(in, "operands");
  SLUICE_CHECK_KIND(kType, !is_floating(in[0].dtype), "operands: dtype is {}; must be an integer or bool",
                    dtype_name(in[0].dtype));
  return {{in[0].dtype, broadcast_shapes(in[0].shape, in[1].shape, "operands")}};
}

std::vector<TensorType> infer_test(Types in, Present, const Attrs&) { return {{DType::kBool, in[0].shape}}; }

std::vector<TensorType> infer_where(Types in, Present, const Attrs&) {
  SLUICE_CHECK_KIND(kType, in[0].dtype == DType::kBool, "condition: dtype is {}; must be bool",
                    dtype_name(in[0].dtype));
  check_same_dtype(in.subspan(1), "operands");
  const Shape ab = broadcast_shapes(in[1].shape, in[2].shape, "operands");
  return {{in[1].dtype, broadcast_shapes(in[0].shape, ab, "condition")}};
}

Values no_gradient2(const GradContext&) { return {Value(), Value()}; }
Values no_gradient1(const GradContext&) { return {Value()}; }

SampleInput sample_input(Shape shape, DType dtype) {
  const bool floating = is_floating(dtype);
  return {.shape = shape, .dtype = dtype, .low = floating ? -1.0 : 0.0, .high = floating ? 1.0 : 3.0};
}

OpDef define(const char* name, const char* doc, std::vector<const char*> inputs,
             std::vector<TensorType> (*infer)(Types, Present, const Attrs&), std::vector<DType> dtypes) {
  OpDef op{.name = name, .doc = doc, .inputs = inputs, .infer = infer, .sbp = elementwise_sbp};
  op.grad = inputs.size() == 2 ? no_gradient2 : no_gradient1;
  const std::pair<Shape, Shape> shapes[] = {{{}, {}}, {{7}, {7}}, {{3, 4}, {4}}, {{2, 1, 4}, {3, 1}}, {{0, 2}, {2}}};
  for (DType dtype : dtypes)
    for (const auto& [a, b] : shapes) {
      Sample s{.inputs = {sample_input(a, dtype)}};
      if (inputs.size() == 2) s.inputs.push_back(sample_input(b, dtype));
      op.samples.push_back(s);
    }
  return op;
}

OpDef compare(const char* name, const char* doc) {
  return define(name, doc, {"a", "b"}, infer_compare, {DType::kFloat32, DType::kInt64, DType::kBool});
}
OpDef logic(const char* name, const char* doc) {
  return define(name, doc, {"a", "b"}, infer_compare, {DType::kBool, DType::kFloat32, DType::kInt32});
}
OpDef bitwise(const char* name, const char* doc) {
  return define(name, doc, {"a", "b"}, infer_bitwise, {DType::kInt64, DType::kUInt8, DType::kBool});
}
OpDef test(const char* name, const char* doc) {
  return define(name, doc, {"x"}, infer_test, {DType::kFloat32, DType::kInt64, DType::kBool});
}

const OpDef eq_def = compare("eq", "a == b as bool, broadcast. torch.eq.");
const OpDef ne_def = compare("ne", "a != b as bool, broadcast. torch.ne.");
const OpDef lt_def = compare("lt", "a < b as bool, broadcast. torch.lt.");
const OpDef le_def = compare("le", "a <= b as bool, broadcast. torch.le.");
const OpDef gt_def = compare("gt", "a > b as bool, broadcast. torch.gt.");
const OpDef ge_def = compare("ge", "a >= b as bool, broadcast. torch.ge.");
const OpDef logical_and_def = logic("logical_and", "Both are non-zero. torch.logical_and.");
const OpDef logical_or_def = logic("logical_or", "Either is non-zero. torch.logical_or.");
const OpDef logical_xor_def = logic("logical_xor", "Exactly one is non-zero. torch.logical_xor.");
const OpDef bitwise_and_def = bitwise("bitwise_and", "a & b of integers or bools. torch.bitwise_and.");
const OpDef bitwise_or_def = bitwise("bitwise_or", "a | b of integers or bools. torch.bitwise_or.");
const OpDef bitwise_xor_def = bitwise("bitwise_xor", "a ^ b of integers or bools. torch.bitwise_xor.");
const OpDef logical_not_def = test("logical_not", "x is zero. torch.logical_not.");
const OpDef isnan_def = test("isnan", "x is not a number. torch.isnan.");
const OpDef isinf_def = test("isinf", "x is plus or minus infinity. torch.isinf.");

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
      return {is_floating(dtype) ? cast(c.grad_outputs[0], dtype) : Value()};
    },
    .sbp = cast_sbp,
    .samples = {{.inputs = {{.shape = {3, 4}}}, .attrs = {DType::kFloat64}},
                {.inputs = {{.shape = {3, 4}, .dtype = DType::kFloat64}}, .attrs = {DType::kFloat32}},
                {.inputs = {{.shape = {3, 4}, .low = -9, .high = 9}}, .attrs = {DType::kInt32}},
                {.inputs = {{.shape = {2, 3}, .dtype = DType::kInt64, .low = -2, .high = 2}}, .attrs = {DType::kBool}},
                {.inputs = {{.shape = {5}, .dtype = DType::kBool, .low = 0, .high = 2}}, .attrs = {DType::kFloat32}},
                {.inputs = {{.shape = {0, 3}}}, .attrs = {DType::kFloat64}}}};

const OpDef* const kOps[] = {&eq_def,         &ne_def,          &lt_def,          &le_def,          &gt_def,
                             &ge_def,         &logical_and_def, &logical_or_def,  &logical_xor_def, &bitwise_and_def,
                             &bitwise_or_def, &bitwise_xor_def, &logical_not_def, &isnan_def,       &isinf_def,
                             &where_def,      &cast_def};

Value promoted_call(const OpDef& op, const Operand& a, const Operand& b) {
  const auto [x, y] = promoted(a, b);
  return call1(op, {x, y});
}

}  // namespace

std::span<const OpDef* const> comparison_ops() { return kOps; }

Value eq(const Operand& a, const Operand& b) { return promoted_call(eq_def, a, b); }
Value ne(const Operand& a, const Operand& b) { return promoted_call(ne_def, a, b); }
Value lt(const Operand& a, const Operand& b) { return promoted_call(lt_def, a, b); }
Value le(const Operand& a, const Operand& b) { return promoted_call(le_def, a, b); }
Value gt(const Operand& a, const Operand& b) { return promoted_call(gt_def, a, b); }
Value ge(const Operand& a, const Operand& b) { return promoted_call(ge_def, a, b); }
Value logical_not(const Value& x) { return call1(logical_not_def, {x}); }
Value logical_and(const Operand& a, const Operand& b) { return promoted_call(logical_and_def, a, b); }
Value logical_or(const Operand& a, const Operand& b) { return promoted_call(logical_or_def, a, b); }
Value logical_xor(const Operand& a, const Operand& b) { return promoted_call(logical_xor_def, a, b); }
Value bitwise_and(const Operand& a, const Operand& b) { return promoted_call(bitwise_and_def, a, b); }
Value bitwise_or(const Operand& a, const Operand& b) { return promoted_call(bitwise_or_def, a, b); }
Value bitwise_xor(const Operand& a, const Operand& b) { return promoted_call(bitwise_xor_def, a, b); }
Value isnan(const Value& x) { return call1(isnan_def, {x}); }
Value isinf(const Value& x) { return call1(isinf_def, {x}); }
Value isfinite(const Value& x) { return logical_not(logical_or(isnan(x), isinf(x))); }

Value bitwise_not(const Value& x) { return x.dtype() == DType::kBool ? logical_not(x) : bitwise_xor(x, -1); }

Value where(const Value& cond, const Operand& a, const Operand& b) {
  const auto [x, y] = promoted(a, b);
  return call1(where_def, {cond, x, y});
}

Value masked_fill(const Value& x, const Value& mask, double value) {
  // The number never changes the dtype of x.
  return call1(where_def, {mask, scalar(value, x.dtype()), x});
}

Value cast(const Value& x, DType dtype) { return x.dtype() == dtype ? x : call1(cast_def, {x}, {dtype}); }

}  // namespace sluice::ops
