// Primitives of two operands.
#include <cmath>

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"

namespace sluice::ops {
namespace {

std::vector<TensorType> infer_any(Types in, Present, const Attrs&) {
  check_same_dtype(in, "operands");
  return {{in[0].dtype, broadcast_shapes(in[0].shape, in[1].shape, "operands")}};
}

std::vector<TensorType> infer_floating(Types in, Present present, const Attrs& attrs) {
  check_floating(in[0], "operands");
  return infer_any(in, present, attrs);
}

using Grad = std::vector<Value> (*)(const GradContext&);

// Operand ranges that keep samples away from points where the function is not smooth.
struct Ranges {
  double a_low = -1, a_high = 1, b_low = -1, b_high = 1;
  bool integers = true;
};

OpDef define(const char* name, const char* doc, Grad grad, Ranges r) {
  OpDef op{.name = name, .doc = doc, .inputs = {"a", "b"}, .infer = infer_any, .grad = grad, .sbp = elementwise_sbp};
  const std::pair<Shape, Shape> shapes[] = {{{}, {}},         {{5}, {5}},   {{3, 4}, {3, 4}},    {{3, 4}, {4}},
                                            {{3, 1}, {3, 4}}, {{}, {2, 3}}, {{2, 3, 4}, {3, 1}}, {{2, 1, 4}, {3, 1}},
                                            {{0, 3}, {3}}};
  for (const auto& [a, b] : shapes)
    op.samples.push_back(
        {.inputs = {{.shape = a, .low = r.a_low, .high = r.a_high}, {.shape = b, .low = r.b_low, .high = r.b_high}}});
  op.samples.push_back({.inputs = {{.shape = {4, 3}, .dtype = DType::kFloat64, .low = r.a_low, .high = r.a_high},
                                   {.shape = {4, 3}, .dtype = DType::kFloat64, .low = r.b_low, .high = r.b_high}}});
  if (r.integers)
    op.samples.push_back({.inputs = {{.shape = {4, 3}, .dtype = DType::kInt64, .low = -9, .high = 9},
                                     {.shape = {3}, .dtype = DType::kInt64, .low = 1, .high = 5}}});
  return op;
}

OpDef with_sbp(OpDef op, std::vector<SbpRow> (*sbp)(Types, const Attrs&)) {
  op.sbp = sbp;
  return op;
}

OpDef floating(OpDef op) {
  op.infer = infer_floating;
  return op;
}

// Partial sums of a quotient: only the numerator may be partial.
std::vector<SbpRow> quotient_sbp(Types in, const Attrs& attrs) {
  std::vector<SbpRow> rows = elementwise_sbp(in, attrs);
  rows.push_back(row_of({Sbp::partial_sum(), Sbp::broadcast()}, Sbp::partial_sum()));
  return rows;
}

// Gradients of both operands from functions that compute them before broadcasting is undone.
template <class Fa, class Fb>
std::vector<Value> both(const GradContext& c, Fa da, Fb db) {
  return {c.needs[0] ? sum_to(da(), c.inputs[0].shape()) : Value(),
          c.needs[1] ? sum_to(db(), c.inputs[1].shape()) : Value()};
}

// As torch: at equality each operand receives half, and beside a NaN both receive all.
std::vector<Value> extremum_grad(const GradContext& c, bool maximum) {
  const Value &g = c.grad_outputs[0], &a = c.inputs[0], &b = c.inputs[1];
  const Value whole = sub(1.0, mul(cast(eq(a, b), g.dtype()), 0.5));
  const auto share = [&](const Value& loses) { return mul(g, sub(whole, cast(loses, g.dtype()))); };
  return both(
      c, [&] { return share(maximum ? lt(a, b) : gt(a, b)); }, [&] { return share(maximum ? gt(a, b) : lt(a, b)); });
}

#define GRAD [](const GradContext& c) -> std::vector<Value> {      \
    [[maybe_unused]] const Value& g = c.grad_outputs[0]; \
    [[maybe_unused]] const Value& a = c.inputs[0];       \
    [[maybe_unused]] const Value& b = c.inputs[1];       \
    [[maybe_unused]] const Value& y = c.outputs[0];      \
    return both
#define END \
  ;         \
  }

const OpDef add_def = with_sbp(define("add", "a + b, broadcast. torch.add; of bools: or.",
                                      GRAD(
                                          c, [&] { return g; }, [&] { return g; }) END,
                                      {}),
                               linear_sbp);
const OpDef sub_def = with_sbp(define("sub", "a - b, broadcast. torch.sub.",
                                      GRAD(
                                          c, [&] { return g; }, [&] { return neg(g); }) END,
                                      {}),
                               linear_sbp);
const OpDef mul_def = with_sbp(define("mul", "a * b, broadcast. torch.mul; of bools: and.",
                                      GRAD(
                                          c, [&] { return mul(g, b); }, [&] { return mul(g, a); }) END,
                                      {}),
                               bilinear_sbp);
const OpDef div_def =
    with_sbp(floating(define("div", "a / b, broadcast. torch.div; floating.",
                             GRAD(
                                 c, [&] { return div(g, b); }, [&] { return neg(mul(div(g, b), div(a, b))); }) END,
                             {.b_low = 0.5, .b_high = 2, .integers = false})),
             quotient_sbp);
const OpDef pow_def = define("pow", "a to the b, broadcast. torch.pow; a negative integer exponent is an error.",
                             GRAD(
                                 c, [&] { return where(eq(b, 0), 0.0, mul(g, mul(b, pow(a, sub(b, 1))))); },
                                 [&] {
                                   // 0^b is constant in b, though its logarithm is not finite.
                                   const Value zero = logical_and(eq(a, 0), ge(b, 0));
                                   return where(zero, 0.0, mul(g, mul(y, log(where(zero, 1.0, a)))));
                                 }) END,
                             {.a_low = 0.5, .a_high = 2, .b_low = -2, .b_high = 2});
const OpDef maximum_def =
    define("maximum", "The larger of a and b; NaN if either is. torch.maximum.",
           [](const GradContext& c) { return extremum_grad(c, true); }, {.a_high = -0.1, .b_low = 0.1});
const OpDef minimum_def =
    define("minimum", "The smaller of a and b; NaN if either is. torch.minimum.",
           [](const GradContext& c) { return extremum_grad(c, false); }, {.a_high = -0.1, .b_low = 0.1});
const OpDef fmod_def = define("fmod", "Remainder of a / b with the sign of a. torch.fmod.",
                              GRAD(
                                  c, [&] { return g; }, [&] { return neg(mul(g, trunc(div(a, b)))); }) END,
                              {.a_low = 2.2, .a_high = 2.8, .b_low = 0.95, .b_high = 1.05});
const OpDef remainder_def = define("remainder", "Remainder of a / b with the sign of b. torch.remainder.",
                                   GRAD(
                                       c, [&] { return g; }, [&] { return neg(mul(g, floor(div(a, b)))); }) END,
                                   {.a_low = 2.2, .a_high = 2.8, .b_low = 0.95, .b_high = 1.05});
const OpDef floor_divide_def = define(
    "floor_divide", "a / b rounded towards minus infinity. torch.floor_divide; an integer divided by 0 is an error.",
    [](const GradContext& c) -> std::vector<Value> {
      return {zeros_like(c.inputs[0]), zeros_like(c.inputs[1])};
    },
    {.a_low = 2.2, .a_high = 2.8, .b_low = 0.95, .b_high = 1.05});
const OpDef atan2_def = floating(define("atan2", "Angle of the point (b, a). torch.atan2; floating.",
                                        GRAD(
                                            c, [&] { return mul(g, div(b, add(mul(a, a), mul(b, b)))); },
                                            [&] { return neg(mul(g, div(a, add(mul(a, a), mul(b, b))))); }) END,
                                        {.a_low = 0.2, .b_low = 0.2, .integers = false}));

#undef GRAD
#undef END

const OpDef* const kOps[] = {&add_def,     &sub_def,  &mul_def,       &div_def,          &pow_def,  &maximum_def,
                             &minimum_def, &fmod_def, &remainder_def, &floor_divide_def, &atan2_def};

Value promoted_call(const OpDef& op, const Operand& a, const Operand& b) {
  const auto [x, y] = promoted(a, b);
  return call1(op, {x, y});
}

Value floating_call(const OpDef& op, const Operand& a, const Operand& b) {
  const DType dtype = result_dtype(a, b);
  const DType wide = is_floating(dtype) ? dtype : DType::kFloat32;
  return call1(op, {a.to(wide), b.to(wide)});
}

}  // namespace

std::span<const OpDef* const> binary_ops() { return kOps; }

Value add(const Operand& a, const Operand& b) { return promoted_call(add_def, a, b); }
Value sub(const Operand& a, const Operand& b) { return promoted_call(sub_def, a, b); }
Value mul(const Operand& a, const Operand& b) { return promoted_call(mul_def, a, b); }
Value div(const Operand& a, const Operand& b) { return floating_call(div_def, a, b); }
Value floor_divide(const Operand& a, const Operand& b) { return promoted_call(floor_divide_def, a, b); }
Value remainder(const Operand& a, const Operand& b) { return promoted_call(remainder_def, a, b); }
Value fmod(const Operand& a, const Operand& b) { return promoted_call(fmod_def, a, b); }
Value maximum(const Operand& a, const Operand& b) { return promoted_call(maximum_def, a, b); }
Value minimum(const Operand& a, const Operand& b) { return promoted_call(minimum_def, a, b); }
Value atan2(const Operand& a, const Operand& b) { return floating_call(atan2_def, a, b); }

Value pow(const Operand& a, const Operand& b) {
  // Common exponents cost a multiplication or a root, and have exact gradients at 0.
  if (!a.is_number() && b.is_number() && is_floating(result_dtype(a, b))) {
    const Value x = a.to(result_dtype(a, b));
    // Roots and reciprocals keep their result for the gradient; that of pow may be written to.
    const auto free = [](const Value& y) { return y.requires_grad() ? copy(y) : y; };
    if (b.number() == 0.5) return free(sqrt(x));
    if (b.number() == 1) return x.ptr() == a.value().ptr() ? copy(x) : x;
    if (b.number() == 2) return mul(x, x);
    if (b.number() == 3) return mul(mul(x, x), x);
    if (b.number() == -1) return free(reciprocal(x));
    if (b.number() == -0.5) return free(rsqrt(x));
  }
  return promoted_call(pow_def, a, b);
}

Value lerp(const Value& a, const Value& b, const Operand& weight) {
  // From the nearer end, so that weight 1 gives b exactly.
  const Value d = sub(b, a);
  if (weight.is_number()) {
    if (std::abs(weight.number()) < 0.5) return add(a, mul(d, weight));
    return sub(b, mul(d, 1 - weight.number()));
  }
  const Value& w = weight.value();
  return where(lt(abs(w), 0.5), add(a, mul(w, d)), sub(b, mul(d, sub(1.0, w))));
}

}  // namespace sluice::ops
