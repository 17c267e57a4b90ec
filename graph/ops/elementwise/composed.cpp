#include "graph/ops/composed.h"

#include <limits>
#include <utility>

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/complex.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/elementwise/scalar_def.h"
#include "graph/ops/reduction.h"

namespace sluice::ops {
namespace {

// As torch: at a bound the gradient is x's, and where the bounds cross or meet the lower one has none.
Values clamp_gradients(const GradContext& c) {
  const Value &g = c.grad_outputs[0], &x = c.inputs[0], &min = c.inputs[1], &max = c.inputs[2];
  const auto part = [&](size_t i, const Value& mask) { return sum_to(where(mask, g, 0.0), c.inputs[i].shape()); };
  return {c.needs[0] ? part(0, logical_and(ge(x, min), le(x, max))) : Value(),
          c.needs[1] ? part(1, logical_and(lt(x, min), lt(min, max))) : Value(),
          c.needs[2] ? part(2, logical_or(gt(x, max), lt(max, min))) : Value()};
}

std::vector<Sample> clamp_samples() {
  std::vector<Sample> out;
  const auto add = [&](Shape x, Shape min, Shape max, double low, double high, DType dtype = DType::kFloat32) {
    const double unit = is_floating(dtype) ? 1 : 9;
    const auto input = [&](Shape shape, double from, double to) {
      return SampleInput{.shape = shape, .dtype = dtype, .low = from * unit, .high = to * unit};
    };
    out.push_back({.inputs = {input(x, low, high), input(min, -0.5, -0.3), input(max, 0.3, 0.5)}});
  };
  add({3, 4}, {}, {}, -0.2, 0.2);
  add({2, 3, 4}, {4}, {3, 1}, -1, -0.6);
  add({4}, {3, 4}, {}, 0.6, 1, DType::kFloat64);
  add({}, {}, {2, 3}, -0.2, 0.2);
  add({0, 3}, {}, {3}, -1, 1);
  add({4, 3}, {}, {}, -1, 1, DType::kInt32);
  return out;
}

const OpDef clamp_def{
    .name = "clamp",
    .doc = "x within [min, max], all three broadcast; NaN where one of them is. torch.clamp with two bounds.",
    .inputs = {"x", "min", "max"},
    .infer = [](Types in, Present, const Attrs&) -> std::vector<TensorType> {
      check_same_dtype(in, "operands");
      const Shape bounds = broadcast_shapes(in[1].shape, in[2].shape, "bounds");
      return {{in[0].dtype, broadcast_shapes(in[0].shape, bounds, "operands")}};
    },
    .grad = clamp_gradients,
    .decompose = [](std::span<const Value> in, const Attrs&) -> std::vector<Value> {
      return {clamp_max(clamp_min(in[0], in[1]), in[2])};
    },
    .sbp = elementwise_sbp,
    .samples = clamp_samples()};

// As torch, of float16 the result alone is rounded.
std::vector<Value> decompose_cube(std::span<const Value> in, const Attrs&) {
  const DType dtype = in[0].dtype();
  const Value x = cast(in[0], dtype == DType::kFloat16 ? DType::kFloat32 : dtype);
  return {cast(mul(mul(x, x), x), dtype)};
}

const OpDef cube_def{.name = "cube",
                     .doc = "x * x * x; of bfloat16 each product is rounded. torch.pow with the exponent 3.",
                     .inputs = {"x"},
                     .infer = [](Types in, Present, const Attrs&) -> std::vector<TensorType> { return {in[0]}; },
                     .grad = holomorphic([](const GradContext& c) -> Values {
                       return {mul(c.grad_outputs[0], mul(square(c.inputs[0]), 3.0))};
                     }),
                     .decompose = decompose_cube,
                     .sbp = elementwise_sbp,
                     .samples = {{.inputs = {{.shape = {}}}},
                                 {.inputs = {{.shape = {3, 4}}}},
                                 {.inputs = {{.shape = {2, 5}, .dtype = DType::kFloat64}}},
                                 {.inputs = {{.shape = {0, 3}}}}}};

// A composed op of floats of one dtype that broadcast, with its numbers as attributes.
struct FloatOp {
  const char* name;
  const char* doc;
  std::vector<const char*> inputs;
  std::vector<const char*> numbers;
  Value (*steps)(const Values& in, const Attrs& numbers);
  // The gradients of the operands, before broadcasting is undone.
  Values (*gradients)(const GradContext& c);
  std::vector<Range> ranges;    // of the samples of each operand
  std::vector<Attrs> variants;  // numbers of samples

  OpDef def() const;
};

std::vector<TensorType> infer_float_op(Types in, Present, const Attrs&) {
  check_same_dtype(in, "operands");
  check_floating(in[0], "operands");
  Shape shape = in[0].shape;
  for (const TensorType& type : in) shape = broadcast_shapes(shape, type.shape, "operands");
  return {{in[0].dtype, shape}};
}

// The second operand of a matrix is a row.
std::vector<Sample> float_samples(const FloatOp& op) {
  const std::pair<Shape, DType> kinds[] = {
      {{}, DType::kFloat32}, {{3, 4}, DType::kFloat32}, {{2, 3, 4}, DType::kFloat64}, {{0, 3}, DType::kFloat32}};
  std::vector<Sample> samples;
  for (const Attrs& numbers : op.variants) {
    for (const auto& [shape, dtype] : kinds) {
      Sample sample{.inputs = {}, .attrs = numbers};
      for (const Range& range : op.ranges) {
        const bool row = sample.inputs.size() == 1 && shape.rank() == 2;
        sample.inputs.push_back(
            {.shape = row ? Shape{shape[1]} : shape, .dtype = dtype, .low = range.low, .high = range.high});
      }
      samples.push_back(std::move(sample));
    }
  }
  return samples;
}

OpDef FloatOp::def() const {
  OpDef def{.name = name, .doc = doc, .inputs = inputs};
  for (const char* number : numbers) def.params.push_back({number, 0.0, true});
  def.infer = infer_float_op;
  def.grad = [gradients = gradients](const GradContext& c) {
    Values grads = gradients(c);
    for (size_t i = 0; i < grads.size(); ++i)
      grads[i] = c.needs[i] && grads[i].defined() ? sum_to(grads[i], c.inputs[i].shape()) : Value();
    return grads;
  };
  def.decompose = [steps = steps](std::span<const Value> in, const Attrs& numbers) -> Values {
    return {steps({in.begin(), in.end()}, numbers)};
  };
  def.sbp = elementwise_sbp;
  def.samples = float_samples(*this);
  return def;
}

double number(const Attrs& numbers, int i) { return attr<double>(numbers, i); }
Value times(const Value& x, double by) { return by == 1 ? x : mul(x, by); }
Value within(const Value& x, double bound) { return logical_and(ge(x, -bound), le(x, bound)); }

const OpDef hardshrink_def = FloatOp{
    .name = "hardshrink",
    .doc = "0 within [-lambd, lambd], else x. torch.nn.functional.hardshrink.",
    .inputs = {"x"},
    .numbers = {"lambd"},
    .steps = [](const Values& in, const Attrs& a) { return where(within(in[0], number(a, 0)), 0.0, in[0]); },
    .gradients = [](const GradContext& c) -> Values {
      return {where(within(c.inputs[0], number(c.attrs, 0)), 0.0, c.grad_outputs[0])};
    },
    .ranges = {{0.6, 2}},
    .variants = {{0.5}, {2.5}}}.def();

const OpDef softshrink_def = FloatOp{
    .name = "softshrink",
    .doc = "0 within [-lambd, lambd], else x moved towards 0 by lambd. torch.nn.functional.softshrink.",
    .inputs = {"x"},
    .numbers = {"lambd"},
    .steps =
        [](const Values& in, const Attrs& a) {
          const Value& x = in[0];
          const double lambd = number(a, 0);
          return where(within(x, lambd), 0.0, where(gt(x, 0), sub(x, lambd), add(x, lambd)));
        },
    .gradients = [](const GradContext& c) -> Values {
      return {where(within(c.inputs[0], number(c.attrs, 0)), 0.0, c.grad_outputs[0])};
    },
    .ranges = {{-2, -0.6}},
    .variants = {{0.5}, {2.5}}}.def();

// At the bounds themselves the gradient is 0; clamp's is 1.
const OpDef hardtanh_def = FloatOp{
    .name = "hardtanh",
    .doc = "x within [min_val, max_val]. torch.nn.functional.hardtanh.",
    .inputs = {"x"},
    .numbers = {"min_val", "max_val"},
    .steps =
        [](const Values& in, const Attrs& a) {
          const double low = number(a, 0), high = number(a, 1);
          return where(le(in[0], low), low, where(ge(in[0], high), high, in[0]));
        },
    .gradients = [](const GradContext& c) -> Values {
      const Value beyond = logical_or(le(c.inputs[0], number(c.attrs, 0)), ge(c.inputs[0], number(c.attrs, 1)));
      return {where(beyond, 0.0, c.grad_outputs[0])};
    },
    .ranges = {{-0.9, 0.9}},
    .variants = {{-1.0, 1.0},
                 {1.0, 2.0}}}.def();

const OpDef threshold_def = FloatOp{
    .name = "threshold",
    .doc = "x where it is above the threshold, else value. torch.nn.functional.threshold.",
    .inputs = {"x"},
    .numbers = {"threshold", "value"},
    .steps = [](const Values& in, const Attrs& a) { return where(le(in[0], number(a, 0)), number(a, 1), in[0]); },
    .gradients = [](const GradContext& c) -> Values {
      return {where(le(c.inputs[0], number(c.attrs, 0)), 0.0, c.grad_outputs[0])};
    },
    .ranges = {{0.2, 1}},
    .variants = {{0.1, 20.0},
                 {2.0, -1.0}}}.def();

const OpDef nan_to_num_def = FloatOp{
    .name = "nan_to_num",
    .doc = "x with numbers in place of NaN and of both infinities. torch.nan_to_num.",
    .inputs = {"x"},
    .numbers = {"nan", "posinf", "neginf"},
    .steps =
        [](const Values& in, const Attrs& a) {
          const Value& x = in[0];
          const Value some = where(eq(x, std::numeric_limits<double>::infinity()), number(a, 1), x);
          return where(isnan(x), number(a, 0), where(isneginf(x), number(a, 2), some));
        },
    .gradients = [](const GradContext& c) -> Values { return {where(isfinite(c.inputs[0]), c.grad_outputs[0], 0.0)}; },
    .ranges = {{-1, 1}},
    .variants = {{0.0, 9.0,
                  -9.0}}}.def();

const OpDef squared_difference_def = FloatOp{
    .name = "squared_difference",
    .doc = "(a - b)^2, of which torch.nn.functional.mse_loss is the mean.",
    .inputs = {"a", "b"},
    .numbers = {},
    .steps = [](const Values& in, const Attrs&) { return square(sub(in[0], in[1])); },
    .gradients = [](const GradContext& c) -> Values {
      const Value slope = mul(c.grad_outputs[0], mul(sub(c.inputs[0], c.inputs[1]), 2));
      return {slope, c.needs[1] ? neg(slope) : Value()};
    },
    .ranges = {{-1, 1}, {-1, 1}},
    .variants = {{}}}.def();

const OpDef huber_def = FloatOp{
    .name = "huber",
    .doc =
        "Of d = |a - b|: factor * d^2 where d is below `bound`, else slope * (d - bound / 2). "
        "torch.nn.functional.huber_loss and smooth_l1_loss.",
    .inputs = {"a", "b"},
    .numbers = {"bound", "factor", "slope"},
    .steps =
        [](const Values& in, const Attrs& a) {
          const Value d = abs(sub(in[0], in[1]));
          const double bound = number(a, 0);
          return where(lt(d, bound), mul(square(d), number(a, 1)), times(sub(d, 0.5 * bound), number(a, 2)));
        },
    .gradients = [](const GradContext& c) -> Values {
      const Value d = sub(c.inputs[0], c.inputs[1]);
      const Value slope =
          where(lt(abs(d), number(c.attrs, 0)), mul(d, 2 * number(c.attrs, 1)), times(sign(d), number(c.attrs, 2)));
      const Value grad = mul(c.grad_outputs[0], slope);
      return {grad, c.needs[1] ? neg(grad) : Value()};
    },
    .ranges = {{-0.3, 0.3}, {-0.3, 0.3}},
    .variants = {{1.0, 0.5, 1.0},
                 {0.9, 0.5,
                  0.9}}}.def();

const OpDef lerp_def = FloatOp{
    .name = "lerp",
    .doc = "a + weight * (b - a), from the nearer end, so that weight 1 gives b. torch.lerp by a number.",
    .inputs = {"a", "b"},
    .numbers = {"weight"},
    .steps =
        [](const Values& in, const Attrs& a) {
          const Value &from = in[0], &to = in[1], d = sub(to, from);
          const double weight = number(a, 0);
          return std::abs(weight) < 0.5 ? add(from, mul(d, weight)) : sub(to, mul(d, 1 - weight));
        },
    .gradients = [](const GradContext& c) -> Values {
      const double weight = number(c.attrs, 0);
      return {c.needs[0] ? mul(c.grad_outputs[0], 1 - weight) : Value(),
              c.needs[1] ? mul(c.grad_outputs[0], weight) : Value()};
    },
    .ranges = {{-1, 1}, {-1, 1}},
    .variants = {{0.25},
                 {0.75}}}.def();

const OpDef addcmul_def = FloatOp{
    .name = "addcmul",
    .doc = "x + value * (a * b). torch.addcmul.",
    .inputs = {"x", "a", "b"},
    .numbers = {"value"},
    .steps = [](const Values& in, const Attrs& a) { return add(in[0], times(mul(in[1], in[2]), number(a, 0))); },
    .gradients = [](const GradContext& c) -> Values {
      const Value g = times(c.grad_outputs[0], number(c.attrs, 0));
      return {c.grad_outputs[0], c.needs[1] ? mul(g, c.inputs[2]) : Value(),
              c.needs[2] ? mul(g, c.inputs[1]) : Value()};
    },
    .ranges = {{-1, 1}, {-1, 1}, {-1, 1}},
    .variants = {{1.0},
                 {0.5}}}.def();

const OpDef addcdiv_def = FloatOp{
    .name = "addcdiv",
    .doc = "x + value * (a / b). torch.addcdiv.",
    .inputs = {"x", "a", "b"},
    .numbers = {"value"},
    .steps = [](const Values& in, const Attrs& a) { return add(in[0], times(div(in[1], in[2]), number(a, 0))); },
    .gradients = [](const GradContext& c) -> Values {
      const Value g = div(times(c.grad_outputs[0], number(c.attrs, 0)), c.inputs[2]);
      return {c.grad_outputs[0], c.needs[1] ? g : Value(),
              c.needs[2] ? neg(mul(g, div(c.inputs[1], c.inputs[2]))) : Value()};
    },
    .ranges = {{-1, 1}, {-1, 1}, {0.5, 1}},
    .variants = {{1.0},
                 {0.5}}}.def();

}  // namespace

Value clamp_between(const Value& x, const Value& min, const Value& max) { return call1(clamp_def, {x, min, max}); }
Value cube(const Value& x) { return call1(cube_def, {x}); }
Value hardshrink(const Value& x, double lambd) { return call1(hardshrink_def, {x}, {lambd}); }
Value softshrink(const Value& x, double lambd) { return call1(softshrink_def, {x}, {lambd}); }
Value hardtanh_of_floats(const Value& x, double min_val, double max_val) {
  return call1(hardtanh_def, {x}, {min_val, max_val});
}
Value threshold_of_floats(const Value& x, double threshold, double value) {
  return call1(threshold_def, {x}, {threshold, value});
}
Value nan_to_num_of_floats(const Value& x, double nan, double posinf, double neginf) {
  return call1(nan_to_num_def, {x}, {nan, posinf, neginf});
}
Value squared_difference(const Value& a, const Value& b) { return call1(squared_difference_def, {a, b}); }
Value huber(const Value& a, const Value& b, double bound, double factor, double slope) {
  return call1(huber_def, {a, b}, {bound, factor, slope});
}
Value lerp_of_floats(const Value& a, const Value& b, double weight) { return call1(lerp_def, {a, b}, {weight}); }
Value addcmul_of_floats(const Value& x, const Value& a, const Value& b, double value) {
  return call1(addcmul_def, {x, a, b}, {value});
}
Value addcdiv_of_floats(const Value& x, const Value& a, const Value& b, double value) {
  return call1(addcdiv_def, {x, a, b}, {value});
}

std::span<const OpDef* const> composed_ops() {
  static const OpDef* const ops[] = {
      &clamp_def,      &cube_def,  &hardshrink_def,         &softshrink_def, &hardtanh_def, &threshold_def,
      &nan_to_num_def, &huber_def, &squared_difference_def, &lerp_def,       &addcmul_def,  &addcdiv_def};
  return ops;
}

}  // namespace sluice::ops
