#include "graph/ops/composed.h"

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/complex.h"
#include "graph/ops/elementwise.h"
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

}  // namespace

Value clamp_between(const Value& x, const Value& min, const Value& max) { return call1(clamp_def, {x, min, max}); }
Value cube(const Value& x) { return call1(cube_def, {x}); }

std::span<const OpDef* const> composed_ops() {
  static const OpDef* const ops[] = {&clamp_def, &cube_def};
  return ops;
}

}  // namespace sluice::ops
