#include "graph/ops/elementwise/scalar_def.h"

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/complex.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/reduction.h"

namespace sluice::ops {
namespace {

Shape result_shape(Types in, const char* what) {
  return in.size() == 1 ? in[0].shape : broadcast_shapes(in[0].shape, in[1].shape, what);
}

std::vector<TensorType> infer_complex(const ScalarOp& s, Types in, const char* what) {
  const DType dtype = in[0].dtype;
  const ScalarOp* form = find_complex_op(s.name);
  SLUICE_CHECK_KIND(kUnsupported, form != nullptr, "not implemented for '{}': {} must be real", dtype_name(dtype),
                    what);
  return {{form->gives_bool ? DType::kBool : form->gives_real ? to_real(dtype) : dtype, result_shape(in, what)}};
}

std::vector<TensorType> infer(const ScalarOp& s, Types in) {
  const char* what = s.inputs == 1 ? "input" : "operands";
  check_same_dtype(in, what);
  const DType dtype = in[0].dtype;
  if (is_complex(dtype)) return infer_complex(s, in, what);
  if (s.integer == nullptr) check_floating(in[0], what);
  SLUICE_CHECK_KIND(kType, s.floating != nullptr || !is_floating(dtype), "{}: dtype is {}; must be an integer or bool",
                    what, dtype_name(dtype));
  SLUICE_CHECK_KIND(kRuntime, s.inputs == 2 || s.gives_bool || dtype != DType::kBool,
                    "{}: dtype is bool; must be a number (cast it first)", what);
  return {{s.gives_bool ? DType::kBool : dtype, result_shape(in, what)}};
}

ScalarDef define(const char* name, const char* doc, SbpRule sbp) {
  const ScalarOp* s = find_scalar_op(name);
  SLUICE_CHECK(s != nullptr, "{}: no entry in base/scalar; an op defined by its scalar form must have one", name);
  ScalarDef def{s, {.name = name, .doc = doc, .inputs = {}}};
  def.op.inputs = s->inputs == 1 ? std::vector{"x"} : std::vector{"a", "b"};
  def.op.infer = [s](Types in, Present, const Attrs&) { return infer(*s, in); };
  def.op.sbp = sbp;
  return def;
}

std::vector<Value> summed(const GradContext& c, ScalarGrad grad) {
  std::vector<Value> gradients = grad(c);
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].defined()) gradients[i] = sum_to(gradients[i], c.inputs[i].shape());
  }
  return gradients;
}

Value floats_if_needed(const ScalarDef& def, const Value& x) { return def.scalar->integer ? x : to_floating(x); }

}  // namespace

ScalarDef unary_def(const char* name, const char* doc, SbpRule sbp, Range x, ScalarGrad grad, bool holomorphic) {
  ScalarDef def = define(name, doc, sbp);
  def.op.grad = holomorphic && find_complex_op(name) ? ops::holomorphic(grad) : GradRule(grad);
  const auto add = [&](Shape shape, DType dtype, Range r) {
    def.op.samples.push_back({.inputs = {{.shape = shape, .dtype = dtype, .low = r.low, .high = r.high}}});
  };
  for (const Shape& shape : {Shape{}, Shape{5}, Shape{3, 4}, Shape{2, 3, 2, 5}, Shape{0, 3}})
    add(shape, DType::kFloat32, x);
  add({4, 3}, DType::kFloat64, x);
  if (def.scalar->integer) add({4, 3}, DType::kInt32, {-5, 5});
  return def;
}

ScalarDef binary_def(const char* name, const char* doc, SbpRule sbp, Range a, Range b, ScalarGrad grad) {
  ScalarDef def = define(name, doc, sbp);
  const GradRule rule = [grad](const GradContext& c) { return summed(c, grad); };
  def.op.grad = find_complex_op(name) ? holomorphic(rule) : rule;
  const auto add = [&](DType dtype, Shape shape_a, Range of_a, Shape shape_b, Range of_b) {
    def.op.samples.push_back({.inputs = {{.shape = shape_a, .dtype = dtype, .low = of_a.low, .high = of_a.high},
                                         {.shape = shape_b, .dtype = dtype, .low = of_b.low, .high = of_b.high}}});
  };
  const std::pair<Shape, Shape> shapes[] = {{{}, {}},         {{5}, {5}},   {{3, 4}, {3, 4}},    {{3, 4}, {4}},
                                            {{3, 1}, {3, 4}}, {{}, {2, 3}}, {{2, 3, 4}, {3, 1}}, {{2, 1, 4}, {3, 1}},
                                            {{0, 3}, {3}}};
  for (const auto& [shape_a, shape_b] : shapes) add(DType::kFloat32, shape_a, a, shape_b, b);
  add(DType::kFloat64, {4, 3}, a, {4, 3}, b);
  if (def.scalar->integer) add(DType::kInt64, {4, 3}, {-9, 9}, {3}, {1, 5});
  return def;
}

ScalarDef discrete_def(const char* name, const char* doc, const std::vector<DType>& dtypes) {
  ScalarDef def = define(name, doc, elementwise_sbp);
  def.op.grad = [](const GradContext& c) { return std::vector<Value>(c.inputs.size()); };
  const std::pair<Shape, Shape> shapes[] = {{{}, {}}, {{7}, {7}}, {{3, 4}, {4}}, {{2, 1, 4}, {3, 1}}, {{0, 2}, {2}}};
  for (DType dtype : dtypes)
    for (const auto& [a, b] : shapes) {
      const double low = is_floating(dtype) ? -1 : 0, high = is_floating(dtype) ? 1 : 3;
      Sample s{.inputs = {{.shape = a, .dtype = dtype, .low = low, .high = high}}};
      if (def.scalar->inputs == 2) s.inputs.push_back({.shape = b, .dtype = dtype, .low = low, .high = high});
      def.op.samples.push_back(s);
    }
  return def;
}

Value call_scalar(const ScalarDef& def, const Value& x) { return call1(def.op, {floats_if_needed(def, x)}); }

Value call_scalar(const ScalarDef& def, const Operand& a, const Operand& b) {
  DType dtype = result_dtype(a, b);
  if (def.scalar->integer == nullptr && !is_differentiable(dtype)) dtype = default_dtype();
  return call1(def.op, {a.to(dtype), b.to(dtype)});
}

std::optional<DType> sixteen_bits(const Operand& a, const Operand& b) {
  const DType dtype = result_dtype(a, b);
  return is_floating(dtype) && dtype_size(dtype) == 2 ? std::optional(dtype) : std::nullopt;
}

Value call_log_product(const ScalarDef& def, const Operand& a, const Operand& b, Value (*log)(const Value&)) {
  const std::optional<DType> dtype = sixteen_bits(a, b);
  if (!dtype) return call_scalar(def, a, b);
  const Value x = a.to(*dtype), y = b.to(*dtype);
  return where(logical_and(eq(x, 0), eq(y, y)), 0.0, mul(x, log(y)));
}

}  // namespace sluice::ops
