#include "graph/ops/reduction.h"

#include <algorithm>
#include <cmath>

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/complex.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/lines.h"
#include "graph/ops/movement.h"
#include "graph/ops/norm_common.h"

namespace sluice::ops {
namespace {

Shape reduced_shape(const Shape& shape, const std::vector<int>& axes, bool keepdim) {
  Shape out;
  for (int i = 0; i < shape.rank(); ++i) {
    const bool reduced = std::find(axes.begin(), axes.end(), i) != axes.end();
    if (!reduced)
      out.push_back(shape[i]);
    else if (keepdim)
      out.push_back(1);
  }
  return out;
}

Shape infer_shape(Types in, const Attrs& attrs) {
  return reduced_shape(in[0].shape, reduced_axes(attrs[0], in[0].shape.rank(), "dim"), attr<bool>(attrs, 1));
}

// Extrema of nothing do not exist.
void check_not_empty(Types in, const Attrs& attrs) {
  const Shape& shape = in[0].shape;
  SLUICE_CHECK_KIND(kIndex, !std::holds_alternative<NoAttr>(attrs[0]) || numel(shape) > 0,
                    "Expected reduction dim to be specified for input.numel() == 0: got shape {}; specify the "
                    "reduction dim with the 'dim' argument",
                    shape.str());
  for (int axis : reduced_axes(attrs[0], shape.rank(), "dim"))
    SLUICE_CHECK_KIND(kIndex, shape[axis] > 0, "Expected reduction dim {} to have non-zero size: got shape {}", axis,
                      shape.str());
}

std::vector<TensorType> infer_sum(Types in, Present, const Attrs& attrs) {
  return {{is_differentiable(in[0].dtype) ? in[0].dtype : DType::kInt64, infer_shape(in, attrs)}};
}
std::vector<TensorType> infer_mean(Types in, Present, const Attrs& attrs) {
  if (!is_complex(in[0].dtype)) check_floating(in[0], "input");
  return {{in[0].dtype, infer_shape(in, attrs)}};
}
std::vector<TensorType> infer_extremum(Types in, Present, const Attrs& attrs) {
  check_not_empty(in, attrs);
  check_ordered(in[0]);
  return {{in[0].dtype, infer_shape(in, attrs)}};
}
std::vector<TensorType> infer_bool(Types in, Present, const Attrs& attrs) {
  return {{DType::kBool, infer_shape(in, attrs)}};
}
std::vector<TensorType> infer_place(Types in, Present, const Attrs& attrs) {
  check_not_empty(in, attrs);
  check_ordered(in[0]);
  SLUICE_CHECK_KIND(kRuntime, in[0].dtype != DType::kBool, "does not support bool input; cast it to integers first");
  return {{DType::kInt64, infer_shape(in, attrs)}};
}

// The rows of a reduction: any kept axis split; with `sums`, a reduced axis split gives partial sums.
std::vector<SbpRow> reduce_sbp(Types in, const Attrs& attrs, bool sums) {
  const int rank = in[0].shape.rank();
  const std::vector<int> axes = reduced_axes(attrs[0], rank, "dim");
  const bool keepdim = attr<bool>(attrs, 1);
  std::vector<SbpRow> rows = broadcast_sbp(in, attrs);
  int kept = 0;
  for (int i = 0; i < rank; ++i) {
    const bool reduced = std::find(axes.begin(), axes.end(), i) != axes.end();
    if (!reduced) rows.push_back(row_of({Sbp::split(i)}, Sbp::split(keepdim ? i : kept)));
    if (reduced && sums) rows.push_back(row_of({Sbp::split(i)}, Sbp::partial_sum()));
    kept += !reduced;
  }
  return rows;
}
std::vector<SbpRow> sum_sbp(Types in, const Attrs& attrs) {
  std::vector<SbpRow> rows = reduce_sbp(in, attrs, true);
  if (in[0].dtype != DType::kBool) rows.push_back(row_of({Sbp::partial_sum()}, Sbp::partial_sum()));
  return rows;
}
std::vector<SbpRow> mean_sbp(Types in, const Attrs& attrs) {
  std::vector<SbpRow> rows = reduce_sbp(in, attrs, false);
  rows.push_back(row_of({Sbp::partial_sum()}, Sbp::partial_sum()));
  return rows;
}
std::vector<SbpRow> other_sbp(Types in, const Attrs& attrs) { return reduce_sbp(in, attrs, false); }

// A reduced tensor (an output or its gradient) back in a shape that broadcasts to the input's.
Value with_axes(const Value& reduced, const Shape& shape, const Attrs& attrs) {
  if (attr<bool>(attrs, 1)) return reduced;
  return reshape(reduced, reduced_shape(shape, reduced_axes(attrs[0], shape.rank(), "dim"), true).vec());
}

int64_t reduced_count(const Shape& shape, const Attr& dim) {
  int64_t n = 1;
  for (int axis : reduced_axes(dim, shape.rank(), "dim")) n *= shape[axis];
  return n;
}

Values sum_grad(const GradContext& c) {
  const Shape& shape = c.inputs[0].shape();
  if (!is_differentiable(c.inputs[0].dtype())) return {Value()};
  return {expand(with_axes(c.grad_outputs[0], shape, c.attrs), shape)};
}

Values mean_grad(const GradContext& c) {
  const Shape& shape = c.inputs[0].shape();
  const int64_t n = std::max<int64_t>(reduced_count(shape, c.attrs[0]), 1);
  return {expand(mul(with_axes(c.grad_outputs[0], shape, c.attrs), 1.0 / static_cast<double>(n)), shape)};
}

Values decompose_mean(std::span<const Value> in, const Attrs& attrs) {
  const DType dtype = in[0].dtype(), wide = dtype_size(dtype) == 2 ? DType::kFloat32 : dtype;
  const Dims dim = attr_is_none(attrs, 0) ? Dims() : Dims(attr<Ints>(attrs, 0));
  const Value total = sum(cast(in[0], wide), dim, attr<bool>(attrs, 1));
  return {cast(div(total, static_cast<double>(reduced_count(in[0].shape(), attrs[0]))), dtype)};
}

// Each element's factor is the product of the others, whose own gradients are right where some of them are zeros, too.
Values prod_grad(const GradContext& c) {
  const Value& x = c.inputs[0];
  if (numel(x.shape()) == 0) return {x};
  const std::vector<int> axes = reduced_axes(c.attrs[0], x.rank(), "dim");
  Ints order, shape, back(x.rank());
  for (int axis = 0; axis < x.rank(); ++axis)
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) order.push_back(axis);
  for (const int64_t kept : order) shape.push_back(x.shape()[static_cast<int>(kept)]);
  shape.push_back(-1);
  order.insert(order.end(), axes.begin(), axes.end());
  for (size_t i = 0; i < order.size(); ++i) back[order[i]] = static_cast<int64_t>(i);
  const Value lines = permute(x, order);
  const Value others = reshape(products_of_others(reshape(lines, shape), -1), lines.shape().vec());
  return {mul(with_axes(c.grad_outputs[0], x.shape(), c.attrs), permute(others, back))};
}

// As torch: elements that share the extremum share the gradient.
Values extremum_grad(const GradContext& c) {
  const Value& x = c.inputs[0];
  const Value y = with_axes(c.outputs[0], x.shape(), c.attrs), g = with_axes(c.grad_outputs[0], x.shape(), c.attrs);
  const Value mask = cast(eq(x, y), x.dtype());
  const Dims dim = attr_is_none(c.attrs, 0) ? Dims() : Dims(attr<Ints>(c.attrs, 0));
  return {mul(div(mask, sum(mask, dim, true)), g)};
}

std::vector<Param> params() {
  return {{.name = "dim", .default_value = Attr(), .nullable = true}, {.name = "keepdim", .default_value = false}};
}

std::vector<Sample> samples(bool empty_allowed, std::vector<DType> dtypes, double low = -1, double high = 1) {
  const Attr none;
  std::vector<Sample> out;
  const auto add = [&](Shape shape, Attr dim, bool keepdim, DType dtype) {
    const bool floating = is_floating(dtype);
    out.push_back({.inputs = {{.shape = shape, .dtype = dtype, .low = floating ? low : 0, .high = floating ? high : 4}},
                   .attrs = {dim, keepdim}});
  };
  add({}, none, false, DType::kFloat32);
  add({7}, none, false, DType::kFloat32);
  add({7}, Ints{0}, true, DType::kFloat32);
  add({3, 4}, Ints{0}, false, DType::kFloat32);
  add({3, 4}, Ints{-1}, true, DType::kFloat32);
  add({2, 3, 4}, Ints{1}, false, DType::kFloat32);
  add({2, 3, 4, 2}, Ints{0, 2, 3}, false, DType::kFloat32);
  add({2, 3, 4, 2}, Ints{0, 2}, true, DType::kFloat32);
  if (empty_allowed) add({0, 3}, Ints{0}, false, DType::kFloat32);
  add({0, 3}, Ints{1}, false, DType::kFloat32);
  for (DType dtype : dtypes) add({3, 5}, Ints{1}, false, dtype);
  return out;
}

const std::vector<DType> kAllKinds = {DType::kFloat64, DType::kInt64, DType::kInt32, DType::kBool};
const std::vector<DType> kNumbers = {DType::kFloat64, DType::kInt64};

#define DIM_DOC " over the axes `dim` (none: all); keepdim leaves them as size 1."

const OpDef sum_def{.name = "sum",
                    .doc = "Sum" DIM_DOC " Integers and bool give int64. torch.sum.",
                    .inputs = {"x"},
                    .params = params(),
                    .infer = infer_sum,
                    .grad = sum_grad,
                    .sbp = sum_sbp,
                    .samples = samples(true, kAllKinds)};
const OpDef sum_of_squares_def{
    .name = "sum_of_squares",
    .doc = "Sum of x * x" DIM_DOC " Of real floats; of 16-bit ones in float32. What torch.linalg.norm is the root of.",
    .inputs = {"x"},
    .params = params(),
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      check_floating(in[0], "input");
      return {{stat_dtype(in[0].dtype), infer_shape(in, attrs)}};
    },
    .grad = [](const GradContext& c) -> Values {
      const Value& x = c.inputs[0];
      const Value g = mul(with_axes(c.grad_outputs[0], x.shape(), c.attrs), 2.0);
      return {cast(mul(g, cast(x, g.dtype())), x.dtype())};
    },
    .decompose = [](std::span<const Value> in, const Attrs& attrs) -> Values {
      const Value x = cast(in[0], stat_dtype(in[0].dtype()));
      const Dims dim = attr_is_none(attrs, 0) ? Dims() : Dims(attr<Ints>(attrs, 0));
      return {sum(mul(x, x), dim, attr<bool>(attrs, 1))};
    },
    .sbp = [](Types in, const Attrs& attrs) { return reduce_sbp(in, attrs, true); },
    .samples = samples(true, {DType::kFloat32, DType::kFloat64})};
const OpDef mean_def{.name = "mean",
                     .doc = "Mean" DIM_DOC " Floating. torch.mean.",
                     .inputs = {"x"},
                     .params = params(),
                     .infer = infer_mean,
                     .grad = mean_grad,
                     .decompose = decompose_mean,
                     .sbp = mean_sbp,
                     .samples = samples(false, {DType::kFloat64})};
const OpDef prod_def{.name = "prod",
                     .doc = "Product" DIM_DOC " Integers and bool give int64. torch.prod.",
                     .inputs = {"x"},
                     .params = params(),
                     .infer = infer_sum,
                     .grad = holomorphic(prod_grad),
                     .sbp = other_sbp,
                     .samples = samples(true, kAllKinds, 0.5, 1.5)};
const OpDef amax_def{.name = "amax",
                     .doc = "Maximum" DIM_DOC " NaN if any is. torch.amax.",
                     .inputs = {"x"},
                     .params = params(),
                     .infer = infer_extremum,
                     .grad = extremum_grad,
                     .sbp = other_sbp,
                     .samples = samples(false, kAllKinds)};
const OpDef amin_def{.name = "amin",
                     .doc = "Minimum" DIM_DOC " NaN if any is. torch.amin.",
                     .inputs = {"x"},
                     .params = params(),
                     .infer = infer_extremum,
                     .grad = extremum_grad,
                     .sbp = other_sbp,
                     .samples = samples(false, kAllKinds)};
const OpDef any_def{.name = "any",
                    .doc = "Some element is non-zero" DIM_DOC " bool. torch.any.",
                    .inputs = {"x"},
                    .params = params(),
                    .infer = infer_bool,
                    .grad = no_gradient,
                    .sbp = other_sbp,
                    .samples = samples(true, kAllKinds)};
const OpDef all_def{.name = "all",
                    .doc = "Every element is non-zero" DIM_DOC " bool. torch.all.",
                    .inputs = {"x"},
                    .params = params(),
                    .infer = infer_bool,
                    .grad = no_gradient,
                    .sbp = other_sbp,
                    .samples = samples(true, kAllKinds)};

#undef DIM_DOC

std::vector<Sample> index_samples() {
  std::vector<Sample> out;
  for (const Sample& s : samples(false, kNumbers)) {
    const Ints* dim = std::get_if<Ints>(&s.attrs[0]);
    if (dim && dim->size() != 1) continue;
    out.push_back(s);
    if (dim) out.back().attrs[0] = (*dim)[0];
  }
  return out;
}

const OpDef argmax_def{.name = "argmax",
                       .doc =
                           "int64 index of the first maximum along `dim` (none: of the flattened tensor); NaN is the "
                           "largest. torch.argmax.",
                       .inputs = {"x"},
                       .params = params(),
                       .infer = infer_place,
                       .grad = no_gradient,
                       .sbp = other_sbp,
                       .samples = index_samples()};
const OpDef argmin_def{.name = "argmin",
                       .doc =
                           "int64 index of the first minimum along `dim` (none: of the flattened tensor); NaN is the "
                           "smallest. torch.argmin.",
                       .inputs = {"x"},
                       .params = params(),
                       .infer = infer_place,
                       .grad = no_gradient,
                       .sbp = other_sbp,
                       .samples = index_samples()};

const OpDef cumsum_def{
    .name = "cumsum",
    .doc = "Running sum along `dim`; integers and bool give int64. torch.cumsum.",
    .inputs = {"x"},
    .params = {{.name = "dim", .default_value = int64_t{0}, .required = true}},
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      normalize_axis(attr<int64_t>(attrs, 0), in[0].shape.rank(), "dim");
      return {{is_differentiable(in[0].dtype) ? in[0].dtype : DType::kInt64, in[0].shape}};
    },
    .grad = [](const GradContext& c) -> Values {
      const int64_t dim = attr<int64_t>(c.attrs, 0);
      if (!is_differentiable(c.inputs[0].dtype())) return {Value()};
      if (c.inputs[0].rank() == 0) return {c.grad_outputs[0]};
      return {flip(cumsum(flip(c.grad_outputs[0], {dim}), dim), {dim})};
    },
    .sbp =
        [](Types in, const Attrs& attrs) {
          std::vector<SbpRow> rows = broadcast_sbp(in, attrs);
          const int dim = normalize_axis(attr<int64_t>(attrs, 0), in[0].shape.rank(), "dim");
          for (int i = 0; i < in[0].shape.rank(); ++i)
            if (i != dim) rows.push_back(row_of({Sbp::split(i)}, Sbp::split(i)));
          if (in[0].dtype != DType::kBool) rows.push_back(row_of({Sbp::partial_sum()}, Sbp::partial_sum()));
          return rows;
        },
    .samples = {{.inputs = {{.shape = {}}}, .attrs = {int64_t{0}}},
                {.inputs = {{.shape = {7}}}, .attrs = {int64_t{0}}},
                {.inputs = {{.shape = {3, 4}}}, .attrs = {int64_t{0}}},
                {.inputs = {{.shape = {2, 3, 4}}}, .attrs = {int64_t{-2}}},
                {.inputs = {{.shape = {3, 4}, .dtype = DType::kInt32, .low = -5, .high = 5}}, .attrs = {int64_t{1}}},
                {.inputs = {{.shape = {0, 3}}}, .attrs = {int64_t{0}}}}};

Value reduce(const OpDef& op, const Value& x, const Dims& dim, bool keepdim) {
  return call1(op, {x}, {dim && !dim->empty() ? Attr(*dim) : Attr(), keepdim});
}

// As torch: of uint8 the answer is uint8.
Value as_truth(const Value& x, const Value& answer) {
  return x.dtype() == DType::kUInt8 ? cast(answer, DType::kUInt8) : answer;
}

Value non_zero(const Value& x) { return is_complex(x.dtype()) ? ne(x, 0) : x; }

Value reduce_index(const OpDef& op, const Value& x, std::optional<int64_t> dim, bool keepdim) {
  return call1(op, {x}, {dim ? Attr(*dim) : Attr(), keepdim});
}

}  // namespace

std::span<const OpDef* const> reduction_ops() {
  static const OpDef* const ops[] = {&sum_def,    &sum_of_squares_def, &mean_def,  &prod_def,
                                     &amax_def,   &amin_def,           &any_def,   &all_def,
                                     &argmax_def, &argmin_def,         &cumsum_def};
  return ops;
}

Value sum(const Value& x, const Dims& dim, bool keepdim) { return reduce(sum_def, x, dim, keepdim); }
Value mean(const Value& x, const Dims& dim, bool keepdim) { return reduce(mean_def, x, dim, keepdim); }
Value prod(const Value& x, const Dims& dim, bool keepdim) { return reduce(prod_def, x, dim, keepdim); }
Value amax(const Value& x, const Dims& dim, bool keepdim) { return reduce(amax_def, x, dim, keepdim); }
Value amin(const Value& x, const Dims& dim, bool keepdim) { return reduce(amin_def, x, dim, keepdim); }
// As torch: with an empty list of dims nothing is reduced.
Value any(const Value& x, const Dims& dim, bool keepdim) {
  return as_truth(x, dim && dim->empty() ? ne(x, 0) : reduce(any_def, non_zero(x), dim, keepdim));
}
Value all(const Value& x, const Dims& dim, bool keepdim) {
  return as_truth(x, dim && dim->empty() ? ne(x, 0) : reduce(all_def, non_zero(x), dim, keepdim));
}
Value cumsum(const Value& x, int64_t dim) { return call1(cumsum_def, {x}, {dim}); }
Value argmax(const Value& x, std::optional<int64_t> dim, bool keepdim) {
  return reduce_index(argmax_def, x, dim, keepdim);
}
Value argmin(const Value& x, std::optional<int64_t> dim, bool keepdim) {
  return reduce_index(argmin_def, x, dim, keepdim);
}

Value logsumexp(const Value& input, const Dims& dim, bool keepdim) {
  const Value x = to_floating(input);
  const Attr axes = dim ? Attr(*dim) : Attr();
  if (reduced_count(x.shape(), axes) == 0) return log(sum(exp(x), dim, keepdim));
  // Any finite shift gives the same result, so no gradient flows through it; it only keeps exp in range.
  const Value top = current_executor().detach(amax(real_part(x), dim, true));
  const Value shift = where(isfinite(top), top, 0.0);
  const Value y = add(log(sum(exp(sub(x, shift)), dim, true)), shift);
  return keepdim ? y : reshape(y, infer_shape(std::vector{x.type()}, {axes, false}).vec());
}

namespace {

// f(x), but `at_zero` with a gradient of 0 where x is 0 and the slope of f infinite: what torch gives there.
template <class F>
Value flat_at_zero(const Value& x, double at_zero, F f) {
  const Value zero = eq(x, 0);
  return where(zero, at_zero, f(where(zero, 1.0, x)));
}

Value var_of_wide(const Value& x, const Dims& dim, double correction, bool keepdim) {
  const double n = static_cast<double>(reduced_count(x.shape(), dim ? Attr(*dim) : Attr()));
  const Value centred = sub(x, mean(x, dim, true));
  const Value squares =
      is_complex(x.dtype()) ? add(square(real_part(centred)), square(imaginary_part(centred))) : square(centred);
  // The variance of nothing is NaN, whatever is subtracted.
  return div(sum(squares, dim, keepdim), n == 0 ? std::nan("") : std::max(n - correction, 0.0));
}

Value norm_of_wide(const Value& x, double p, const Dims& dim, bool keepdim) {
  if (p == 2)
    return flat_at_zero(reduce(sum_of_squares_def, x, dim, keepdim), 0, [](const Value& v) { return sqrt(v); });
  if (std::isinf(p)) return p > 0 ? amax(abs(x), dim, keepdim) : amin(abs(x), dim, keepdim);
  if (p == 0) {
    const Value counted = cast(ne(x, 0), x.dtype());
    // The gradient is 0.
    return sum(x.requires_grad() ? where(full(x.shape(), 1, DType::kBool), counted, x) : counted, dim, keepdim);
  }
  if (p == 1) return sum(abs(x), dim, keepdim);
  const Value powers =
      p > 1 ? pow(abs(x), p) : flat_at_zero(abs(x), std::pow(0.0, p), [&](const Value& v) { return pow(v, p); });
  return flat_at_zero(sum(powers, dim, keepdim), std::pow(0.0, 1 / p), [&](const Value& v) { return pow(v, 1 / p); });
}

}  // namespace

Value var(const Value& x, const Dims& dim, double correction, bool keepdim) {
  if (!is_complex(x.dtype())) check_floating(x.type(), "var: input");
  return cast(var_of_wide(cast(x, stat_dtype(x.dtype())), dim, correction, keepdim), to_real(x.dtype()));
}

Value std(const Value& x, const Dims& dim, double correction, bool keepdim) {
  if (!is_complex(x.dtype())) check_floating(x.type(), "std: input");
  const Value squared = var_of_wide(cast(x, stat_dtype(x.dtype())), dim, correction, keepdim);
  return cast(flat_at_zero(squared, 0, [](const Value& v) { return sqrt(v); }), to_real(x.dtype()));
}

Value norm(const Value& x, double p, const Dims& dim, bool keepdim) {
  if (is_complex(x.dtype())) return norm(abs(x), p, dim, keepdim);
  check_floating(x.type(), "norm: input");
  return cast(norm_of_wide(p == 2 ? x : cast(x, stat_dtype(x.dtype())), p, dim, keepdim), x.dtype());
}

Value sum_to(const Value& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  const int shift = x.rank() - shape.rank();
  Ints leading, kept;
  for (int i = 0; i < x.rank(); ++i) {
    if (i < shift)
      leading.push_back(i);
    else if (shape[i - shift] != x.shape()[i])
      kept.push_back(i);
  }
  Ints axes = leading;
  axes.insert(axes.end(), kept.begin(), kept.end());
  const Value y = sum(x, axes, true);
  return leading.empty() ? y : reshape(y, shape.vec());
}

}  // namespace sluice::ops
