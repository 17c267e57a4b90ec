#include "graph/ops/pooling.h"

#include <algorithm>

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/indexing.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"
#include "graph/ops/spatial/spatial.h"
#include "graph/tape.h"

namespace sluice::ops {
namespace {

// Shape of the pooled tensor; checks that the windows fit x.
Shape pooled_shape(const char* where, const Shape& x, const Windows& w, bool ceil_mode) {
  const int dims = x.rank() - 2;
  SLUICE_CHECK_KIND(kRuntime, dims >= 1 && dims <= 3,
                    "{}: input has the wrong rank: {}; it must be (batch, channels, 1 to 3 spatial dims)", where,
                    x.str());
  check_per_dim(w.kernel, dims, 1, where, "kernel_size");
  check_per_dim(w.stride, dims, 1, where, "stride");
  check_per_dim(w.padding, dims, 0, where, "padding");
  check_per_dim(w.dilation, dims, 1, where, "dilation");
  Shape y = {x[0], x[1]};
  for (int d = 0; d < dims; ++d) {
    SLUICE_CHECK_KIND(kRuntime, w.padding[d] <= w.kernel[d] / 2,
                      "{}: padding is too large: {} for a kernel of {}; it must be at most half the kernel size", where,
                      w.padding[d], w.kernel[d]);
    const int64_t n = window_count(x[2 + d], w.kernel[d], w.stride[d], w.padding[d], w.dilation[d], ceil_mode);
    SLUICE_CHECK_KIND(
        kRuntime, n >= 1,
        "{}: window is larger than the padded input: input is {}, kernel {}, padding {}; dilation * (kernel - "
        "1) + 1 must be at most input + 2 * padding",
        where, x.str(), w.kernel[d], w.padding[d]);
    y.push_back(n);
  }
  return y;
}

// max_pool: kernel_size, stride, padding, dilation, ceil_mode.
std::vector<TensorType> infer_max_pool(Types in, Present, const Attrs& a) {
  SLUICE_CHECK_KIND(kRuntime, in[0].dtype != DType::kBool, "max_pool: dtype has no order: got bool; cast to a number");
  const Windows w{attr<Ints>(a, 0), attr<Ints>(a, 1), attr<Ints>(a, 2), attr<Ints>(a, 3)};
  const Shape y = pooled_shape("max_pool", in[0].shape, w, attr<bool>(a, 4));
  return {{in[0].dtype, y}, {DType::kInt64, y}};
}

std::vector<TensorType> infer_max_pool_values(Types in, Present present, const Attrs& a) {
  return {infer_max_pool(in, present, a)[0]};
}
extern const OpDef max_pool_def;
std::vector<Value> decompose_max_pool_values(std::span<const Value> in, const Attrs& a) {
  return {call(max_pool_def, in, a)[0]};
}

Value max_pool_backward(const Value& grad, const Value& indices, const Ints& input_shape);

std::vector<Value> grad_max_pool(const GradContext& c) {
  if (!c.grad_outputs[0].defined()) return {Value()};
  return {max_pool_backward(c.grad_outputs[0], c.outputs[1], c.inputs[0].shape().vec())};
}

std::vector<TensorType> infer_max_pool_backward(Types in, Present, const Attrs& a) {
  const Shape x(attr<Ints>(a, 0));
  SLUICE_CHECK_KIND(
      kRuntime, in[0].shape == in[1].shape && in[1].dtype == DType::kInt64,
      "max_pool_backward: indices do not fit: grad is {}, indices are {}; they must be int64 and shaped as grad",
      in[0].str(), in[1].str());
  SLUICE_CHECK_KIND(kRuntime,
                    x.rank() == in[0].shape.rank() && x.rank() >= 3 && x[0] == in[0].shape[0] && x[1] == in[0].shape[1],
                    "max_pool_backward: input_shape does not fit: {} for grad {}; batch and channels must be equal",
                    x.str(), in[0].str());
  return {{in[0].dtype, x}};
}

Ints flat_spatial(const Shape& s) {
  int64_t n = 1;
  for (int i = 2; i < s.rank(); ++i) n *= s[i];
  return {s[0], s[1], n};
}
std::vector<Value> grad_max_pool_backward(const GradContext& c) {
  const Value &v = c.grad_outputs[0], &indices = c.inputs[1];
  const Value picked = gather(reshape(v, flat_spatial(v.shape())), reshape(indices, flat_spatial(indices.shape())), 2);
  return {reshape(picked, c.inputs[0].shape().vec()), Value()};
}
std::vector<Value> decompose_max_pool_backward(std::span<const Value> in, const Attrs& a) {
  const Shape x(attr<Ints>(a, 0));
  const Ints from = flat_spatial(in[0].shape());
  const Value sums =
      scatter_add(zeros(Shape(flat_spatial(x)), in[0].dtype()), reshape(in[1], from), reshape(in[0], from), 2);
  return {reshape(sums, x.vec())};
}

// avg_pool: kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override; _backward: input_shape first.
Windows avg_windows(const Attrs& a, int at) {
  return {attr<Ints>(a, at), attr<Ints>(a, at + 1), attr<Ints>(a, at + 2), Ints(attr<Ints>(a, at).size(), 1)};
}
std::vector<TensorType> infer_avg_pool(Types in, Present, const Attrs& a) {
  check_floating(in[0], "avg_pool");
  return {{in[0].dtype, pooled_shape("avg_pool", in[0].shape, avg_windows(a, 0), attr<bool>(a, 3))}};
}
std::vector<TensorType> infer_avg_pool_backward(Types in, Present, const Attrs& a) {
  check_floating(in[0], "avg_pool_backward");
  const Shape x(attr<Ints>(a, 0)), y = pooled_shape("avg_pool_backward", x, avg_windows(a, 1), attr<bool>(a, 4));
  SLUICE_CHECK_KIND(kRuntime, y == in[0].shape,
                    "avg_pool_backward: gradient has the wrong shape: {}; the pooled shape of {} is {}",
                    in[0].shape.str(), x.str(), y.str());
  return {{in[0].dtype, x}};
}
extern const OpDef avg_pool_backward_def;
extern const OpDef avg_pool_def;
std::vector<Value> grad_avg_pool(const GradContext& c) {
  Attrs attrs = c.attrs;
  attrs.insert(attrs.begin(), c.inputs[0].shape().vec());
  return {call1(avg_pool_backward_def, {c.grad_outputs[0]}, attrs)};
}
std::vector<Value> grad_avg_pool_backward(const GradContext& c) {
  return {call1(avg_pool_def, {c.grad_outputs[0]}, Attrs(c.attrs.begin() + 1, c.attrs.end()))};
}

// Batch and channels split; pooling and its adjoints are per sample and channel. Only avg_pool is linear.
std::vector<SbpRow> sbp_forward(Types in, const Attrs& a, int outputs, bool linear) {
  (void)in, (void)a;
  std::vector<SbpRow> rows;
  for (int axis : {0, 1}) rows.push_back({{Sbp::split(axis)}, std::vector<Sbp>(outputs, Sbp::split(axis))});
  rows.push_back({{Sbp::broadcast()}, std::vector<Sbp>(outputs, Sbp::broadcast())});
  if (linear) rows.push_back({{Sbp::partial_sum()}, {Sbp::partial_sum()}});
  return rows;
}
std::vector<SbpRow> sbp_backward(Types in, const Attrs&) {
  SbpRow whole{std::vector<Sbp>(in.size()), {Sbp::broadcast()}}, partial = whole;
  partial.inputs[0] = Sbp::partial_sum();
  partial.outputs[0] = Sbp::partial_sum();
  std::vector<SbpRow> rows = {whole, partial};
  for (int axis : {0, 1}) rows.push_back({std::vector<Sbp>(in.size(), Sbp::split(axis)), {Sbp::split(axis)}});
  return rows;
}

Cost pool_cost(Types in, Types out, const Ints& kernel) {
  double k = 1;
  for (int64_t d : kernel) k *= static_cast<double>(d);
  return {k * static_cast<double>(numel(out[0].shape)), operand_bytes(in, out)};
}

const Param kInputShape{.name = "input_shape", .default_value = Ints{}, .required = true};
const Param kKernel{.name = "kernel_size", .default_value = Ints{}, .required = true};
const Param kStride{.name = "stride", .default_value = Ints{}, .required = true};
const Param kPadding{.name = "padding", .default_value = Ints{}, .required = true};
const Param kDilation{.name = "dilation", .default_value = Ints{}, .required = true};
const Param kCeil{.name = "ceil_mode", .default_value = false};
const Param kIncludePad{.name = "count_include_pad", .default_value = true};
const Param kDivisor{.name = "divisor_override", .default_value = int64_t{0}};

const OpDef max_pool_def{
    .name = "max_pool",
    .doc = "Largest element of each window and its index into the flattened spatial dims (torch.max_poolNd).",
    .inputs = {"x"},
    .params = {kKernel, kStride, kPadding, kDilation, kCeil},
    .num_outputs = 2,
    .infer = infer_max_pool,
    .grad = grad_max_pool,
    .sbp = [](Types in, const Attrs& a) { return sbp_forward(in, a, 2, false); },
    .cost = [](Types in, Types out, const Attrs& a) { return pool_cost(in, out, attr<Ints>(a, 0)); },
    .samples =
        {
            {{{{2, 3, 6, 6}}}, {Ints{2, 2}, Ints{2, 2}, Ints{0, 0}, Ints{1, 1}, false}},
            {{{{2, 3, 7, 6}}}, {Ints{3, 2}, Ints{2, 1}, Ints{1, 1}, Ints{1, 2}, true}},
            {{{{2, 3, 9}}}, {Ints{3}, Ints{2}, Ints{1}, Ints{1}, false}},
            {{{{1, 2, 4, 4, 5}}}, {Ints{2, 2, 2}, Ints{2, 2, 2}, Ints{0, 0, 1}, Ints{1, 1, 1}, false}},
        }};

const OpDef max_pool_values_def{
    .name = "max_pool_values",
    .doc = "max_pool without its indices, for where no gradient is wanted (torch.max_pool1d).",
    .inputs = {"x"},
    .params = {kKernel, kStride, kPadding, kDilation, kCeil},
    .infer = infer_max_pool_values,
    .decompose = decompose_max_pool_values,
    .sbp = [](Types in, const Attrs& a) { return sbp_forward(in, a, 1, false); },
    .cost = [](Types in, Types out, const Attrs& a) { return pool_cost(in, out, attr<Ints>(a, 0)); },
    .samples =
        {
            {{{{2, 3, 9}}}, {Ints{3}, Ints{2}, Ints{1}, Ints{1}, false}},
            {{{{2, 3, 40}}}, {Ints{2}, Ints{1}, Ints{1}, Ints{3}, true}},
            {{{{2, 3, 7, 6}}}, {Ints{3, 2}, Ints{2, 1}, Ints{1, 1}, Ints{1, 2}, true}},
            {{{{1, 2, 4, 4, 5}}}, {Ints{2, 2, 2}, Ints{2, 2, 2}, Ints{0, 0, 1}, Ints{1, 1, 1}, false}},
        }};

const OpDef max_pool_backward_def{
    .name = "max_pool_backward",
    .doc = "Adds each gradient to the element its window chose; the gradient of max_pool.",
    .inputs = {"grad", "indices"},
    .params = {kInputShape},
    .infer = infer_max_pool_backward,
    .grad = grad_max_pool_backward,
    .decompose = decompose_max_pool_backward,
    .sbp = sbp_backward,
    .localize = localize_shape,
    .samples = {
        {{{{2, 3, 2, 2}}, {.shape = {2, 3, 2, 2}, .dtype = DType::kInt64, .low = 0, .high = 16}}, {Ints{2, 3, 4, 4}}}}};

const OpDef avg_pool_def{
    .name = "avg_pool",
    .doc = "Mean of each window (torch.avg_poolNd); divisor_override 0 means none.",
    .inputs = {"x"},
    .params = {kKernel, kStride, kPadding, kCeil, kIncludePad, kDivisor},
    .infer = infer_avg_pool,
    .grad = grad_avg_pool,
    .sbp = [](Types in, const Attrs& a) { return sbp_forward(in, a, 1, true); },
    .cost = [](Types in, Types out, const Attrs& a) { return pool_cost(in, out, attr<Ints>(a, 0)); },
    .samples =
        {
            {{{{2, 3, 6, 6}}}, {Ints{2, 2}, Ints{2, 2}, Ints{0, 0}, false, true, int64_t{0}}},
            {{{{2, 3, 7, 6}}}, {Ints{3, 2}, Ints{2, 1}, Ints{1, 1}, true, false, int64_t{0}}},
            {{{{2, 3, 7, 6}}}, {Ints{3, 2}, Ints{3, 2}, Ints{1, 0}, true, true, int64_t{0}}},
            {{{{2, 3, 9}}}, {Ints{3}, Ints{2}, Ints{1}, false, true, int64_t{2}}},
            {{{{1, 2, 4, 4, 5}}}, {Ints{2, 2, 2}, Ints{2, 2, 2}, Ints{0, 0, 1}, false, true, int64_t{0}}},
        }};

const OpDef avg_pool_backward_def{
    .name = "avg_pool_backward",
    .doc = "Spreads each gradient over its window; the adjoint of avg_pool on inputs of shape `input_shape`.",
    .inputs = {"grad"},
    .params = {kInputShape, kKernel, kStride, kPadding, kCeil, kIncludePad, kDivisor},
    .infer = infer_avg_pool_backward,
    .grad = grad_avg_pool_backward,
    .sbp = sbp_backward,
    .localize = localize_shape,
    .samples = {
        {{{{2, 3, 3, 3}}}, {Ints{2, 3, 6, 6}, Ints{2, 2}, Ints{2, 2}, Ints{0, 0}, false, true, int64_t{0}}},
        {{{{2, 3, 5}}}, {Ints{2, 3, 9}, Ints{3}, Ints{2}, Ints{1}, false, false, int64_t{0}}},
    }};

Value max_pool_backward(const Value& grad, const Value& indices, const Ints& input_shape) {
  return call1(max_pool_backward_def, {grad, indices}, {input_shape});
}

// x with a batch dim, when its rank says it has none.
bool unbatched(const Value& x, const Ints& per_spatial_dim) {
  return x.rank() == static_cast<int>(per_spatial_dim.size()) + 1;
}

Attrs max_pool_attrs(const MaxPoolOptions& o) {
  const int dims = static_cast<int>(o.kernel_size.size());
  return {o.kernel_size, o.stride.empty() ? o.kernel_size : per_dim(o.stride, dims, 1, "max_pool", "stride"),
          per_dim(o.padding, dims, 0, "max_pool", "padding"), per_dim(o.dilation, dims, 1, "max_pool", "dilation"),
          o.ceil_mode};
}

// [begin, end) of cell i of `out` cells over `in` elements (torch.adaptive_*_pool).
std::pair<int64_t, int64_t> cell(int64_t i, int64_t in, int64_t out) {
  return {i * in / out, ((i + 1) * in + out - 1) / out};
}

Ints adaptive_sizes(const char* where, const Value& x, const Ints& output_size) {
  const int dims = static_cast<int>(output_size.size());
  SLUICE_CHECK_KIND(kRuntime, dims >= 1 && dims <= 3 && x.rank() == dims + 2,
                    "{}: input has the wrong rank: {}; output_size has {} entries", where, x.shape().str(), dims);
  Ints sizes = output_size;
  for (int d = 0; d < dims; ++d) {
    if (sizes[d] == -1) sizes[d] = x.shape()[2 + d];
    SLUICE_CHECK_KIND(kRuntime, sizes[d] >= 0 && x.shape()[2 + d] >= 1,
                      "{}: elements of output_size must be greater than or equal to 0, and the input's dims positive: "
                      "input is {}, output_size[{}] is {}",
                      where, x.shape().str(), d, sizes[d]);
  }
  return sizes;
}
bool no_cells(const Ints& sizes) { return std::find(sizes.begin(), sizes.end(), 0) != sizes.end(); }
// None of x's elements, at these spatial sizes, one of which is 0.
Value emptied(const Value& x, const Ints& sizes) {
  Ints shape = {x.shape()[0], x.shape()[1]};
  shape.insert(shape.end(), sizes.begin(), sizes.end());
  return reshape(slice_axis(x, 2, 0, 0), shape);
}
// The kernel of the ordinary pooling it equals, or empty.
Ints even_kernel(const Value& x, const Ints& sizes) {
  Ints kernel;
  for (size_t d = 0; d < sizes.size(); ++d) {
    const int64_t in = x.shape()[2 + static_cast<int>(d)];
    if (in % sizes[d] != 0) return {};
    kernel.push_back(in / sizes[d]);
  }
  return kernel;
}
// One spatial dim after the other: reduces each cell of it.
template <class Reduce>
Value by_cells(Value x, const Ints& sizes, Reduce reduce) {
  for (size_t d = 0; d < sizes.size(); ++d) {
    const int axis = 2 + static_cast<int>(d);
    const int64_t in = x.shape()[axis];
    const int64_t out = sizes[d];
    if (in == out) continue;
    std::vector<Value> cells;
    if (out < in) {
      for (int64_t i = 0; i < out; ++i) {
        const auto [begin, end] = cell(i, in, out);
        cells.push_back(reduce(slice_axis(x, axis, begin, end), axis));
      }
      x = concat(cells, axis);
      continue;
    }
    // Cells of one element or two, many of them equal: those that there are, and the number of each.
    Shape shape = x.shape();
    shape[axis] = out;
    checked_bytes(shape, sizeof(int64_t) * static_cast<uint64_t>(in));  // so that no number below overflows
    const Value begins = iota(0, in, out), ends = iota(in, in, out);
    const Value first = floor_divide(begins, out), last = floor_divide(sub(ends, 1), out);
    for (int64_t i = 0; i + 1 < in; ++i) cells.push_back(reduce(slice_axis(x, axis, i, i + 2), axis));
    cells.insert(cells.begin(), x);
    x = index_select(concat(cells, axis), add(first, mul(sub(last, first), in)), axis);
  }
  return x;
}

}  // namespace

std::pair<Value, Value> max_pool_with_indices(const Value& x, const MaxPoolOptions& o) {
  if (unbatched(x, o.kernel_size)) {
    auto [y, i] = max_pool_with_indices(unsqueeze(x, 0), o);
    return {squeeze(y, Ints{0}), squeeze(i, Ints{0})};
  }
  const Value inputs[] = {x};
  auto out = call(max_pool_def, inputs, max_pool_attrs(o));
  return {out[0], out[1]};
}

Value max_pool(const Value& x, const MaxPoolOptions& o) {
  // Indices cost as much as the rest along one axis, where the values are computed fastest.
  if (o.kernel_size.size() > 1 || (grad_enabled() && x.requires_grad())) return max_pool_with_indices(x, o).first;
  if (unbatched(x, o.kernel_size)) return squeeze(max_pool(unsqueeze(x, 0), o), Ints{0});
  return call1(max_pool_values_def, {x}, max_pool_attrs(o));
}

Value avg_pool(const Value& x, const AvgPoolOptions& o) {
  if (unbatched(x, o.kernel_size)) return squeeze(avg_pool(unsqueeze(x, 0), o), Ints{0});
  const int dims = static_cast<int>(o.kernel_size.size());
  return call1(
      avg_pool_def, {x},
      {o.kernel_size, o.stride.empty() ? o.kernel_size : per_dim(o.stride, dims, 1, "avg_pool", "stride"),
       per_dim(o.padding, dims, 0, "avg_pool", "padding"), o.ceil_mode, o.count_include_pad, o.divisor_override});
}

Value adaptive_avg_pool(const Value& x, const Ints& output_size) {
  if (unbatched(x, output_size)) return squeeze(adaptive_avg_pool(unsqueeze(x, 0), output_size), Ints{0});
  const Ints sizes = adaptive_sizes("adaptive_avg_pool", x, output_size);
  if (no_cells(sizes)) return emptied(x, sizes);
  Ints axes;
  bool global = true;
  for (size_t d = 0; d < sizes.size(); ++d) {
    axes.push_back(2 + static_cast<int64_t>(d));
    global &= sizes[d] == 1;
  }
  if (global) return mean(x, axes, true);
  if (const Ints kernel = even_kernel(x, sizes); !kernel.empty()) return avg_pool(x, {{.kernel_size = kernel}});
  return by_cells(x, sizes, [](const Value& v, int64_t axis) { return mean(v, Ints{axis}, true); });
}

Value adaptive_max_pool(const Value& x, const Ints& output_size) {
  if (unbatched(x, output_size)) return squeeze(adaptive_max_pool(unsqueeze(x, 0), output_size), Ints{0});
  const Ints sizes = adaptive_sizes("adaptive_max_pool", x, output_size);
  if (no_cells(sizes)) return emptied(x, sizes);
  if (const Ints kernel = even_kernel(x, sizes); !kernel.empty()) return max_pool(x, {{.kernel_size = kernel}, {}});
  return by_cells(x, sizes, [](const Value& v, int64_t axis) {
    Ints kernel(v.rank() - 2, 1);
    kernel[axis - 2] = v.shape()[static_cast<int>(axis)];
    return max_pool(v, {{.kernel_size = kernel}, {}});
  });
}

// One dim after the other from the last, so that of equal elements the first in row order wins.
std::pair<Value, Value> adaptive_max_pool_with_indices(const Value& x, const Ints& output_size) {
  const Ints sizes = adaptive_sizes("adaptive_max_pool", x, output_size);
  if (no_cells(sizes)) {
    const Value y = emptied(x, sizes);
    return {y, cast(y, DType::kInt64)};
  }
  if (const Ints kernel = even_kernel(x, sizes); !kernel.empty())
    return max_pool_with_indices(x, {{.kernel_size = kernel}, {}});
  const Ints flat = flat_spatial(x.shape());
  Ints row(x.rank(), 1);
  for (int d = 2; d < x.rank(); ++d) row[d] = x.shape()[d];
  Value y = x, at = expand(reshape(iota(0, 1, flat[2]), row), x.shape());
  for (int axis = x.rank() - 1; axis >= 2; --axis) {
    const int64_t in = x.shape()[axis], out = sizes[axis - 2];
    if (in == out) continue;
    std::vector<Value> values, indices;
    for (int64_t i = 0; i < out; ++i) {
      const auto [begin, end] = cell(i, in, out);
      Ints kernel(x.rank() - 2, 1);
      kernel[axis - 2] = end - begin;
      const auto [best, where] = max_pool_with_indices(slice_axis(y, axis, begin, end), {{.kernel_size = kernel}, {}});
      const Value from = slice_axis(at, axis, begin, end);
      const Value chosen =
          gather(reshape(from, flat_spatial(from.shape())), reshape(where, flat_spatial(where.shape())), 2);
      values.push_back(best);
      indices.push_back(reshape(chosen, best.shape().vec()));
    }
    y = concat(values, axis), at = concat(indices, axis);
  }
  return {y, at};
}

std::span<const OpDef* const> pooling_ops() {
  static const OpDef* const defs[] = {&max_pool_def, &max_pool_values_def, &max_pool_backward_def, &avg_pool_def,
                                      &avg_pool_backward_def};
  return defs;
}

}  // namespace sluice::ops
