#include "graph/ops/lines.h"

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/complex.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/indexing.h"
#include "graph/ops/movement.h"
#include "graph/ops/norm_common.h"
#include "graph/ops/shaping.h"

namespace sluice::ops {
namespace {

// Lines lie whole on a device: every other axis may be split.
std::vector<SbpRow> lines_sbp(Types in, const Attrs& attrs) {
  std::vector<SbpRow> rows = broadcast_sbp(in, attrs);
  const int rank = in[0].shape.rank(), dim = normalize_axis(attr<int64_t>(attrs, 0), rank, "dim");
  for (int i = 0; i < rank; ++i)
    if (i != dim) rows.push_back(row_of(std::vector(in.size(), Sbp::split(i)), Sbp::split(i)));
  return rows;
}

std::vector<TensorType> infer_index(Types in, Present, const Attrs& attrs) {
  check_ordered(in[0]);
  SLUICE_CHECK(in[0].shape.rank() > 0, "x: has rank 0; must have an axis");
  normalize_axis(attr<int64_t>(attrs, 0), in[0].shape.rank(), "dim");
  return {{DType::kInt64, in[0].shape}};
}

// A part of the sorted lines, whose extent no shard of another axis changes.
std::vector<TensorType> infer_order(Types in, Present present, const Attrs& attrs) {
  std::vector<TensorType> out = infer_index(in, present, attrs);
  int64_t& length = out[0].shape[normalize_axis(attr<int64_t>(attrs, 0), in[0].shape.rank(), "dim")];
  const int64_t first = attr<int64_t>(attrs, 2), count = attr<int64_t>(attrs, 3);
  SLUICE_CHECK(first >= 0 && first <= length && count >= -1 && count <= length - first,
               "first, count: {} and {} of lines of {}; must be a range of them", first, count, length);
  length = count < 0 ? length - first : count;
  return out;
}

std::vector<Param> of_dim() { return {{.name = "dim", .default_value = int64_t{0}, .required = true}}; }

std::vector<Sample> samples(size_t inputs, bool directed) {
  std::vector<Sample> out;
  const auto add = [&](const Shape& shape, int64_t dim, DType dtype = DType::kFloat32) {
    const double bound = is_floating(dtype) ? 1 : 9;
    const SampleInput x{.shape = shape, .dtype = dtype, .low = -bound, .high = bound};
    Attrs attrs = {dim};
    if (directed) attrs.emplace_back(out.size() % 2 == 1);
    out.push_back({.inputs = std::vector(inputs, x), .attrs = attrs});
  };
  add({7}, 0);
  add({3, 4}, 0);
  add({3, 4}, 1);
  add({2, 3, 4}, -2);
  add({3, 5}, 1, DType::kInt32);
  add({1}, 0);
  add({0, 3}, 0);
  add({2, 0}, 0);
  return out;
}

std::vector<Sample> order_samples() {
  std::vector<Sample> out = samples(1, true);
  const auto part = [&](const Shape& shape, int64_t dim, bool descending, int64_t first, int64_t count,
                        DType dtype = DType::kFloat32) {
    const SampleInput x{.shape = shape, .dtype = dtype, .low = -9, .high = 9};
    out.push_back({.inputs = {x}, .attrs = {dim, descending, first, count}});
  };
  for (Sample& sample : out) sample.attrs.insert(sample.attrs.end(), {int64_t{0}, int64_t{-1}});
  part({3, 40}, 1, true, 0, 2);
  part({3, 40}, 1, false, 0, 30);
  part({40, 3}, 0, false, 17, 1, DType::kInt64);
  part({40, 3}, 0, true, 35, -1, DType::kInt32);
  part({4, 3}, 1, true, 1, 0);
  return out;
}

const OpDef argsort_def{
    .name = "argsort",
    .doc =
        "Where the elements of a line along `dim`, once sorted, were: int64, stable; NaN is the largest. Of the sorted "
        "line `count` elements from `first` on; all that follow where `count` is -1. torch.argsort(stable=True).",
    .inputs = {"x"},
    .params = {{.name = "dim", .default_value = int64_t{0}, .required = true},
               {.name = "descending", .default_value = false},
               {.name = "first", .default_value = int64_t{0}},
               {.name = "count", .default_value = int64_t{-1}}},
    .infer = infer_order,
    .grad = no_gradient,
    .sbp = lines_sbp,
    .samples = order_samples()};

OpDef running_extremum_def(const char* name, const char* doc) {
  return {.name = name,
          .doc = doc,
          .inputs = {"x"},
          .params = of_dim(),
          .infer = infer_index,
          .grad = no_gradient,
          .sbp = lines_sbp,
          .samples = samples(1, false)};
}

const OpDef running_argmax_def = running_extremum_def(
    "running_argmax",
    "Where the maximum of the elements up to each one along `dim` is: int64; the last of equal ones, and of NaN. "
    "torch.cummax's indices.");
const OpDef running_argmin_def = running_extremum_def(
    "running_argmin",
    "Where the minimum of the elements up to each one along `dim` is: int64; the last of equal ones, and of NaN. "
    "torch.cummin's indices.");

// The lines moved on by one element, with 0 in front.
Value delayed(const Value& x, int axis) {
  Ints low(x.rank(), 0);
  low[axis] = 1;
  return pad(narrow(x, axis, 0, x.shape()[axis] - 1), low, Ints(x.rank(), 0));
}

std::vector<Sample> recurrence_samples() {
  std::vector<Sample> out = samples(2, false);
  out.push_back({.inputs = {{.shape = {3, 4}}, {.shape = {3, 1}}}, .attrs = {int64_t{1}}});
  out.push_back({.inputs = {{.shape = {2, 3, 4}}, {.shape = {2, 1, 4}}}, .attrs = {int64_t{1}}});
  return out;
}

const OpDef linear_recurrence_def{
    .name = "linear_recurrence",
    .doc =
        "y[0] = b[0], y[i] = a[i] * y[i - 1] + b[i] along `dim`: what torch.cumsum is a special case of. a and b have "
        "one shape and dtype; or b has one element along `dim`, and nothing is added to products: torch.cumprod.",
    .inputs = {"a", "b"},
    .params = of_dim(),
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      check_same_dtype(in, "inputs");
      SLUICE_CHECK(in[0].dtype != DType::kBool, "inputs: dtype is bool; must be of numbers");
      SLUICE_CHECK(in[0].shape.rank() > 0, "inputs: have rank 0; must have an axis");
      Shape firsts = in[0].shape;
      firsts[normalize_axis(attr<int64_t>(attrs, 0), firsts.rank(), "dim")] = 1;
      SLUICE_CHECK(in[0].shape == in[1].shape || firsts == in[1].shape,
                   "inputs: shapes are {} and {}; they must be equal, or the second be {}", in[0].shape.str(),
                   in[1].shape.str(), firsts.str());
      return {in[0]};
    },
    .grad = holomorphic([](const GradContext& c) -> Values {
      const Value &a = c.inputs[0], &g = c.grad_outputs[0];
      if (!is_differentiable(a.dtype())) return {Value(), Value()};
      if (numel(a.shape()) == 0) return {zeros_like(a), zeros_like(c.inputs[1])};
      // The same recurrence from the end on: of_b[i] = g[i] + a[i + 1] * of_b[i + 1].
      const int axis = normalize_axis(attr<int64_t>(c.attrs, 0), a.rank(), "dim");
      const Ints line{axis};
      const Value of_b = flip(linear_recurrence(delayed(flip(a, line), axis), flip(g, line), axis), line);
      return {c.needs[0] ? mul(of_b, delayed(c.outputs[0], axis)) : Value(),
              c.needs[1] ? narrow(of_b, axis, 0, c.inputs[1].shape()[axis]) : Value()};
    }),
    .sbp =
        [](Types in, const Attrs& attrs) {
          std::vector<SbpRow> rows = lines_sbp(in, attrs);
          rows.push_back(row_of({Sbp::broadcast(), Sbp::partial_sum()}, Sbp::partial_sum()));
          return rows;
        },
    .samples = recurrence_samples()};

// f of x as a tensor with axes, in x's shape.
template <class F>
Value of_lines(const Value& x, F f) {
  return x.rank() > 0 ? f(x) : reshape(f(reshape(x, {1})), {});
}

// As torch: the extremum of nothing is nothing, and that of one element without dims is itself, which needs no order.
std::pair<Value, Value> running_extremum(const char* name, const Value& x, int64_t dim,
                                         Value (*at)(const Value&, int64_t)) {
  normalize_axis(dim, x.rank(), name);
  const Value index = at(x.rank() == 0 || numel(x.shape()) == 0 ? eq(x, x) : x, dim);
  return {gather(x, index, dim), index};
}

}  // namespace

std::span<const OpDef* const> lines_ops() {
  static const OpDef* const ops[] = {&argsort_def, &running_argmax_def, &running_argmin_def, &linear_recurrence_def};
  return ops;
}

Value argsort(const Value& x, int64_t dim, bool descending) {
  return of_lines(x, [&](const Value& v) { return order_part(v, dim, descending, 0, -1); });
}
Value order_part(const Value& x, int64_t dim, bool descending, int64_t first, int64_t count) {
  return call1(argsort_def, {x}, {dim, descending, first, count});
}
Value running_argmax(const Value& x, int64_t dim) {
  return of_lines(x, [&](const Value& v) { return call1(running_argmax_def, {v}, {dim}); });
}
Value running_argmin(const Value& x, int64_t dim) {
  return of_lines(x, [&](const Value& v) { return call1(running_argmin_def, {v}, {dim}); });
}
Value linear_recurrence(const Value& a, const Value& b, int64_t dim) {
  return call1(linear_recurrence_def, {a, b}, {dim});
}

Value cumprod(const Value& input, int64_t dim) {
  const Value x = is_differentiable(input.dtype()) ? input : cast(input, DType::kInt64);
  const int axis = normalize_axis(dim, x.rank(), "cumprod");
  if (x.rank() == 0 || numel(x.shape()) == 0) return x;
  return linear_recurrence(x, narrow(x, axis, 0, 1), axis);
}

Value products_of_others(const Value& x, int64_t dim) {
  const int axis = normalize_axis(dim, x.rank(), "prod");
  const auto before = [&](const Value& v) {
    return linear_recurrence(delayed(v, axis), ones_like(narrow(v, axis, 0, 1)), axis);
  };
  return mul(before(x), flip(before(flip(x, Ints{axis})), Ints{axis}));
}

std::pair<Value, Value> cummax(const Value& x, int64_t dim) {
  return running_extremum("cummax", x, dim, &running_argmax);
}
std::pair<Value, Value> cummin(const Value& x, int64_t dim) {
  return running_extremum("cummin", x, dim, &running_argmin);
}

Value logcumsumexp(const Value& input, int64_t dim) {
  const int axis = normalize_axis(dim, input.rank(), "logcumsumexp");
  SLUICE_CHECK_KIND(kUnsupported, is_differentiable(input.dtype()),
                    "logcumsumexp: not implemented for {}; the input must be floating", dtype_name(input.dtype()));
  if (input.rank() == 0 || numel(input.shape()) == 0) return input;
  // Sums of 16-bit floats are made in float32, since they lose too much otherwise.
  const Value x = cast(input, stat_dtype(input.dtype()));
  // Sums are kept relative to the maximum so far, m: s[i] = s[i - 1] * exp(m[i - 1] - m[i]) + exp(x[i] - m[i]). Any
  // finite m gives the same result, so no gradient flows through it. For complex numbers it is the one with the largest
  // real part.
  const Value top = current_executor().detach(gather(x, running_argmax(real_part(x), axis), axis));
  const Value m = where(isfinite(top), top, 0.0);
  const Value sums = linear_recurrence(exp(sub(delayed(m, axis), m)), exp(sub(x, m)), axis);
  return cast(add(log(sums), m), input.dtype());
}

}  // namespace sluice::ops
