#include "graph/ops/strided_view.h"

#include <algorithm>

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/extent.h"
#include "graph/ops/indexing.h"
#include "graph/ops/movement.h"
#include "graph/ops/shaping.h"

namespace sluice::ops {
namespace {

using ViewSpec = OpDef::ViewSpec;

// The attributes, checked against the input: no element outside it is seen.
struct Steps {
  Shape shape;
  Ints starts, steps;  // steps: a row of the input's rank per axis of the output

  Steps(const Shape& input, const Attrs& attrs)
      : shape(std::span<const int64_t>(attr<Ints>(attrs, 0))),
        starts(attr<Ints>(attrs, 1)),
        steps(attr<Ints>(attrs, 2)) {
    const size_t rank = static_cast<size_t>(input.rank());
    SLUICE_CHECK(starts.size() == rank && steps.size() == rank * static_cast<size_t>(shape.rank()),
                 "starts, steps: {} and {} values; must be {} and {}", starts.size(), steps.size(), rank,
                 rank * static_cast<size_t>(shape.rank()));
    for (int64_t d : shape) checked_dim(d, "shape");
    if (numel(shape) == 0) return;
    for (int k = 0; k < input.rank(); ++k) {
      Wide least = starts[k], most = starts[k];
      for (int j = 0; j < shape.rank(); ++j) {
        const Wide moved = Wide{shape[j] - 1} * step(j, k, input.rank());
        (moved < 0 ? least : most) += moved;
      }
      SLUICE_CHECK_KIND(kRuntime, least >= 0 && most < input[k],
                        "axis {}: elements outside of the input would be seen: shape {}, starts {}, steps {}; they "
                        "must lie in {}",
                        k, shape.str(), attr_str(starts), attr_str(steps), input.str());
    }
  }
  int64_t step(int out_axis, int in_axis, int in_rank) const {
    return steps[static_cast<size_t>(out_axis) * in_rank + in_axis];
  }
};

ViewSpec view_of(const Steps& steps, const Strides& strides, int rank) {
  ViewSpec v;
  v.shape = steps.shape;
  for (int j = 0; j < v.shape.rank(); ++j) {
    int64_t stride = 0;
    for (int k = 0; k < rank; ++k) {  // beyond 63 bits, it has one element, whose stride means nothing
      int64_t part = 0;
      if (__builtin_mul_overflow(steps.step(j, k, rank), strides[k], &part) ||
          __builtin_add_overflow(stride, part, &stride))
        stride = 1;
    }
    v.strides.push_back(stride);
  }
  if (numel(v.shape) > 0)
    for (int k = 0; k < rank; ++k) v.offset += steps.starts[k] * strides[k];
  return v;
}

// The places of the view's elements among x's in row-major order: int64, of the view's shape.
Value positions(const Shape& x, const Attrs& attrs) {
  const ViewSpec v = view_of(Steps(x, attrs), contiguous_strides(x), x.rank());
  Value at = full(Shape(Ints(v.shape.rank(), 1)), static_cast<double>(v.offset), DType::kInt64);
  for (int j = 0; j < v.shape.rank(); ++j) {
    Ints along(v.shape.rank(), 1);
    along[j] = v.shape[j];
    at = add(at, reshape(mul(iota(0, 1, v.shape[j]), v.strides[j]), along));
  }
  return at;
}

const OpDef strided_view_def{
    .name = "strided_view",
    .doc =
        "y[o] = x[i], where i[k] is starts[k] plus the sum over j of o[j] * steps[j * rank + k]. A view: "
        "torch.diagonal, torch.Tensor.unfold, and torch.as_strided of contiguous memory.",
    .inputs = {"x"},
    .params = {{.name = "shape", .default_value = Ints{}, .required = true},
               {.name = "starts", .default_value = Ints{}, .required = true},
               {.name = "steps", .default_value = Ints{}, .required = true}},
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      return {{in[0].dtype, Steps(in[0].shape, attrs).shape}};
    },
    .grad = [](const GradContext& c) -> std::vector<Value> {
      const Value& x = c.inputs[0];
      const Value at = flatten(positions(x.shape(), c.attrs)), none = zeros({numel(x.shape())}, x.dtype());
      return {reshape(index_add(none, at, flatten(c.grad_outputs[0]), 0), x.shape().vec())};
    },
    .sbp = [](Types in, const Attrs&) { return untouched_sbp(in, {}); },
    .view = [](const TensorSpec& input, const Attrs& attrs) -> std::optional<ViewSpec> {
      return view_of(Steps(input.shape, attrs), input.strides, input.shape.rank());
    },
    .unview =
        [](const Value& base, const Attrs& attrs, const Value& value) {
          SLUICE_CHECK_KIND(kRuntime, numel(value.shape()) <= numel(base.shape()),
                            "in-place: more than one element of the written-to tensor refers to a single memory "
                            "location: a view of shape {} of {}; clone() it before writing",
                            value.shape().str(), base.shape().str());
          const Value at = flatten(positions(base.shape(), attrs));
          return reshape(scatter(flatten(base), at, flatten(value), 0), base.shape().vec());
        },
    .samples = {{.inputs = {{.shape = {3, 4}}}, .attrs = {Ints{3}, Ints{0, 1}, Ints{1, 1}}},
                {.inputs = {{.shape = {7}}}, .attrs = {Ints{3, 3}, Ints{0}, Ints{2, 1}}},
                {.inputs = {{.shape = {2, 3, 3}}}, .attrs = {Ints{2, 3}, Ints{0, 0, 0}, Ints{1, 0, 0, 0, 1, 1}}},
                {.inputs = {{.shape = {5}, .dtype = DType::kInt64, .low = -9, .high = 9}},
                 .attrs = {Ints{2, 2}, Ints{1}, Ints{0, 3}}},
                {.inputs = {{.shape = {2, 3}}}, .attrs = {Ints{0}, Ints{0, 0}, Ints{1, 1}}},
                {.inputs = {{.shape = {2}}}, .attrs = {Ints{}, Ints{1}, Ints{}}}}};

}  // namespace

std::span<const OpDef* const> strided_view_ops() {
  static const OpDef* const ops[] = {&strided_view_def};
  return ops;
}

Value strided_view(const Value& x, const Ints& shape, const Ints& starts, const Ints& steps) {
  return call1(strided_view_def, {x}, {shape, starts, steps});
}

Value diagonal(const Value& x, int64_t offset, int64_t dim1, int64_t dim2) {
  const int rank = x.rank(), a = normalize_axis(dim1, rank, "diagonal"), b = normalize_axis(dim2, rank, "diagonal");
  SLUICE_CHECK_KIND(kRuntime, a != b, "diagonal: diagonal dimensions cannot be identical {}, {}; they must differ",
                    dim1, dim2);
  const int64_t rows = x.shape()[a], columns = x.shape()[b];
  const Wide length =
      offset >= 0 ? std::min<Wide>(rows, Wide{columns} - offset) : std::min<Wide>(Wide{rows} + offset, columns);
  Ints shape, starts(rank, 0), steps;
  for (int k = 0; k < rank; ++k) {
    if (k == a || k == b) continue;
    shape.push_back(x.shape()[k]);
    steps.resize(steps.size() + rank);
    steps[steps.size() - rank + k] = 1;
  }
  shape.push_back(static_cast<int64_t>(std::max<Wide>(length, 0)));
  steps.resize(steps.size() + rank);
  steps[steps.size() - rank + a] = steps[steps.size() - rank + b] = 1;
  if (shape.back() > 0) (offset >= 0 ? starts[b] : starts[a]) = offset >= 0 ? offset : -offset;
  return strided_view(x, shape, starts, steps);
}

Value sliding_windows(const Value& x, int64_t dim, int64_t size, int64_t step) {
  if (x.rank() == 0) return reshape(sliding_windows(reshape(x, {1}), dim, size, step), {size});
  const int rank = x.rank(), axis = normalize_axis(dim, rank, "unfold");
  const int64_t length = x.shape()[axis];
  SLUICE_CHECK_KIND(kRuntime, size >= 0 && size <= length,
                    "unfold: maximum size for tensor at dimension {} is {} but size is {}; it must be from 0 to that",
                    axis, length, size);
  SLUICE_CHECK_KIND(kRuntime, step > 0, "unfold: step is {} but must be > 0", step);
  Ints shape = x.shape().vec(), steps;
  shape[axis] = (length - size) / step + 1;
  shape.push_back(size);
  for (int j = 0; j <= rank; ++j)
    for (int k = 0; k < rank; ++k) steps.push_back(j == axis && k == axis ? step : j == k || (j == rank && k == axis));
  return strided_view(x, shape, Ints(rank, 0), steps);
}

Value as_strided(const Value& x, const Ints& size, const Ints& stride, int64_t offset) {
  SLUICE_CHECK_KIND(kRuntime, size.size() == stride.size(),
                    "as_strided: mismatch in length of strides and shape: {} and {}; they must be equal", stride.size(),
                    size.size());
  for (int64_t s : stride)
    SLUICE_CHECK_KIND(kRuntime, s >= 0, "as_strided: Negative strides are not supported at the moment, got strides: {}",
                      attr_str(stride));
  Wide last = offset, count = 1;
  for (size_t i = 0; i < size.size(); ++i) {
    count *= checked_dim(size[i], "as_strided");
    last += Wide{size[i] - 1} * stride[i];
  }
  SLUICE_CHECK_KIND(kRuntime, count == 0 || (offset >= 0 && last < numel(x.shape())),
                    "as_strided: setStorage: sizes {}, strides {}, storage offset {} are out of bounds for storage of "
                    "{} elements; every element must lie in it",
                    attr_str(size), attr_str(stride), offset, numel(x.shape()));
  return strided_view(flatten(x), size, {count == 0 ? 0 : offset}, stride);
}

}  // namespace sluice::ops
