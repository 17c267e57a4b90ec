#include "graph/ops/random.h"

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/elementwise.h"

namespace sluice::ops {
namespace {

void check_state(const TensorType& state) {
  SLUICE_CHECK(state.dtype == DType::kInt64 && state.shape == Shape{2},
               "state: is {}; must be int64(2,): seed and step", state.str());
}

// The inference of the generators: params are two numbers, salt, shape, dtype.
std::vector<TensorType> infer_generator(const Attrs& attrs, Types in, bool floating) {
  check_state(in[0]);
  const TensorType out{attr<DType>(attrs, 4), Shape(attr<Ints>(attrs, 3))};
  numel(out.shape);
  SLUICE_CHECK_KIND(kType, !floating || is_floating(out.dtype), "dtype: {}; must be floating", dtype_name(out.dtype));
  return {out};
}

OpDef define(const char* name, const char* doc, Param first, Param second,
             std::vector<TensorType> (*infer)(Types, Present, const Attrs&), std::vector<std::pair<Attr, Attr>> values,
             DType dtype) {
  OpDef op{.name = name,
           .doc = doc,
           .inputs = {"state"},
           .infer = infer,
           .grad = no_gradient,
           .sbp = broadcast_sbp,
           .random = true};
  op.params = {std::move(first),
               std::move(second),
               {.name = "salt", .default_value = int64_t{0}},
               {.name = "shape", .default_value = Ints{}, .required = true},
               {.name = "dtype", .default_value = dtype}};
  const SampleInput state{.shape = {2}, .dtype = DType::kInt64, .low = 0, .high = 1000};
  for (const auto& [a, b] : values)
    for (const Ints& shape : {Ints{}, Ints{7}, Ints{3, 4, 5}, Ints{0, 2}})
      op.samples.push_back({.inputs = {state}, .attrs = {a, b, int64_t{3}, shape, dtype}});
  return op;
}

const OpDef uniform_def = define(
    "uniform", "Uniform in [low, high), from the generator state int64(2,). torch.Tensor.uniform_.",
    {.name = "low", .default_value = 0.0}, {.name = "high", .default_value = 1.0},
    [](Types in, Present, const Attrs& attrs) { return infer_generator(attrs, in, true); }, {{0.0, 1.0}, {-2.0, 3.0}},
    DType::kFloat32);
const OpDef normal_def = define(
    "normal", "Normal with mean and standard deviation, from the generator state int64(2,). torch.normal.",
    {.name = "mean", .default_value = 0.0}, {.name = "std", .default_value = 1.0},
    [](Types in, Present, const Attrs& attrs) { return infer_generator(attrs, in, true); }, {{0.0, 1.0}, {5.0, 0.5}},
    DType::kFloat32);
const OpDef randint_def = define(
    "randint", "Integers in [low, high), from the generator state int64(2,). torch.randint.",
    {.name = "low", .default_value = int64_t{0}}, {.name = "high", .default_value = int64_t{2}},
    [](Types in, Present, const Attrs& attrs) {
      SLUICE_CHECK(attr<int64_t>(attrs, 0) < attr<int64_t>(attrs, 1), "low, high: {}, {}; low must be below high",
                   attr<int64_t>(attrs, 0), attr<int64_t>(attrs, 1));
      return infer_generator(attrs, in, false);
    },
    {{int64_t{0}, int64_t{10}}, {int64_t{-5}, int64_t{5}}}, DType::kInt64);

void check_probability(double p) { SLUICE_CHECK(p >= 0 && p <= 1, "p: {}; must be in [0, 1]", p); }

const OpDef bernoulli_def{.name = "bernoulli",
                          .doc = "1 with probability p, else 0, from the generator state int64(2,). torch.bernoulli.",
                          .inputs = {"state"},
                          .params = {{.name = "p", .default_value = 0.5},
                                     {.name = "salt", .default_value = int64_t{0}},
                                     {.name = "shape", .default_value = Ints{}, .required = true},
                                     {.name = "dtype", .default_value = DType::kFloat32}},
                          .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
                            check_state(in[0]);
                            check_probability(attr<double>(attrs, 0));
                            const TensorType out{attr<DType>(attrs, 3), Shape(attr<Ints>(attrs, 2))};
                            numel(out.shape);
                            return {out};
                          },
                          .grad = no_gradient,
                          .sbp = broadcast_sbp,
                          .random = true,
                          .samples = {{.inputs = {{.shape = {2}, .dtype = DType::kInt64, .low = 0, .high = 1000}},
                                       .attrs = {0.3, int64_t{1}, Ints{3, 50}, DType::kFloat32}},
                                      {.inputs = {{.shape = {2}, .dtype = DType::kInt64, .low = 0, .high = 1000}},
                                       .attrs = {0.5, int64_t{1}, Ints{0, 5}, DType::kBool}}}};

Sample dropout_sample(Shape shape, double p) {
  return {.inputs = {{.shape = {2}, .dtype = DType::kInt64, .low = 0, .high = 1000}, {.shape = shape}},
          .attrs = {p, int64_t{5}}};
}

const OpDef dropout_def{
    .name = "dropout",
    .doc =
        "x / (1 - p) where kept, else 0; each element is dropped with probability p, from the generator state "
        "int64(2,). torch.nn.functional.dropout in training.",
    .inputs = {"state", "x"},
    .params = {{.name = "p", .default_value = 0.5}, {.name = "salt", .default_value = int64_t{0}}},
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      check_state(in[0]);
      check_floating(in[1], "x");
      check_probability(attr<double>(attrs, 0));
      return {in[1]};
    },
    // The mask is made again from the counter instead of being kept.
    .grad = [](const GradContext& c) -> Values {
      return {Value(), dropout(c.inputs[0], c.grad_outputs[0], attr<double>(c.attrs, 0), attr<int64_t>(c.attrs, 1))};
    },
    .decompose = [](std::span<const Value> in, const Attrs& attrs) -> Values {
      const double p = attr<double>(attrs, 0);
      const Value kept = bernoulli(in[0], in[1].shape(), 1 - p, in[1].dtype(), attr<int64_t>(attrs, 1));
      return {mul(mul(in[1], kept), p < 1 ? 1 / (1 - p) : 0)};
    },
    .sbp = broadcast_sbp,
    .random = true,
    .samples = {dropout_sample({}, 0.5), dropout_sample({7}, 0.5), dropout_sample({3, 4, 5}, 0.25),
                dropout_sample({2, 3}, 0), dropout_sample({2, 3}, 1), dropout_sample({0, 3}, 0.5)}};

const OpDef numbers_of_keys_def{
    .name = "numbers_of_keys",
    .doc =
        "Numbers uniform in [0, 1), float32 (N, count): those of row i come of keys[i], int64 (N, 2), and salt alone. "
        "So a "
        "sample has the same ones in any batch, and on any number of threads.",
    .inputs = {"keys"},
    .params = {{.name = "count", .default_value = int64_t{1}}, {.name = "salt", .default_value = int64_t{0}}},
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      SLUICE_CHECK(in[0].dtype == DType::kInt64 && in[0].shape.rank() == 2 && in[0].shape[1] == 2,
                   "keys: is {}; must be int64(N, 2)", in[0].str());
      const int64_t count = attr<int64_t>(attrs, 0);
      SLUICE_CHECK(count >= 0, "count: {}; must not be negative", count);
      const TensorType out{DType::kFloat32, Shape{in[0].shape[0], count}};
      numel(out.shape);
      return {out};
    },
    .grad = no_gradient,
    .sbp = [](Types inputs, const Attrs& attrs) -> std::vector<SbpRow> {
      std::vector<SbpRow> rows = broadcast_sbp(inputs, attrs);
      rows.push_back(row_of({Sbp::split(0)}, Sbp::split(0)));
      return rows;
    },
    .samples = {{.inputs = {{.shape = {5, 2}, .dtype = DType::kInt64, .low = 0, .high = 100}},
                 .attrs = {int64_t{3}, int64_t{1}}},
                {.inputs = {{.shape = {0, 2}, .dtype = DType::kInt64, .low = 0, .high = 100}},
                 .attrs = {int64_t{70}, int64_t{0}}}}};

}  // namespace

std::span<const OpDef* const> random_ops() {
  static const OpDef* const ops[] = {&uniform_def,   &normal_def,  &randint_def,
                                     &bernoulli_def, &dropout_def, &numbers_of_keys_def};
  return ops;
}

Value uniform(const Value& state, const Shape& shape, double low, double high, DType dtype, int64_t salt) {
  return call1(uniform_def, {state}, {low, high, salt, shape.vec(), dtype});
}
Value normal(const Value& state, const Shape& shape, double mean, double std, DType dtype, int64_t salt) {
  return call1(normal_def, {state}, {mean, std, salt, shape.vec(), dtype});
}
Value bernoulli(const Value& state, const Shape& shape, double p, DType dtype, int64_t salt) {
  return call1(bernoulli_def, {state}, {p, salt, shape.vec(), dtype});
}
Value randint(const Value& state, const Shape& shape, int64_t low, int64_t high, DType dtype, int64_t salt) {
  return call1(randint_def, {state}, {low, high, salt, shape.vec(), dtype});
}
Value dropout(const Value& state, const Value& x, double p, int64_t salt) {
  return call1(dropout_def, {state, x}, {p, salt});
}

}  // namespace sluice::ops
