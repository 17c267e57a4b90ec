// Pools.
#include "graph/ops/pooling.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/indexing.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"
#include "onnx/ops/windows.h"
#include "onnx/table.h"

namespace sluice::onnx {
namespace {

Ints spatial_axes(int rank) {
  Ints axes(static_cast<size_t>(rank - 2));
  std::iota(axes.begin(), axes.end(), 2);
  return axes;
}
Ints window_axes(const Windows& w) {
  Ints axes(w.kernel.size());
  std::iota(axes.begin(), axes.end(), static_cast<int64_t>(w.kernel.size()) + 2);
  return axes;
}
Value window_sums(const Value& x, const Windows& w) { return ops::sum(all_windows(x, w, 0), window_axes(w)); }

Value average_pool(const Call& c) {
  const Value& x = c.in(0);
  const Windows w = windows_of(c, x.shape());
  const bool count_padding = c.i("count_include_pad") != 0;
  const bool dilated = std::any_of(w.dilation.begin(), w.dilation.end(), [](int64_t d) { return d != 1; });
  if (symmetric(w) && !dilated && c.i("ceil_mode") == 0) {
    ops::AvgPoolOptions options;
    options.kernel_size = w.kernel;
    options.stride = w.stride;
    options.padding = w.low;
    options.count_include_pad = count_padding;
    bool fits = true;  // torch's rule
    for (size_t d = 0; d < w.kernel.size(); ++d) fits &= 2 * w.low[d] <= w.kernel[d];
    if (fits) return ops::avg_pool(x, options);
  }
  Shape ones_shape{1, 1};
  for (const int64_t axis : spatial_axes(x.rank())) ones_shape.push_back(x.shape()[static_cast<int>(axis)]);
  Value ones = ops::ones(ones_shape, x.dtype());
  Windows counted = w;
  if (count_padding) {
    Ints low{0, 0}, high{0, 0};
    low.insert(low.end(), w.low.begin(), w.low.end());
    high.insert(high.end(), w.high.begin(), w.high.end());
    ones = ops::pad(ones, low, high, 1);
    counted.low.assign(w.low.size(), 0);
  }
  return ops::div(window_sums(x, w), window_sums(ones, counted));
}

Value lp_pool(const Call& c) {
  const Windows w = windows_of(c, c.in(0).shape());
  const auto p = static_cast<double>(c.i("p", 2));
  return ops::pow(window_sums(ops::pow(ops::abs(c.in(0)), p), w), 1 / p);
}

// Numbers of elements in a padded input as numbers in the input: within all of it, and as the file counts them.
Value file_indices(const Call& c, const Value& index, const Shape& padded, const Ints& low) {
  const Shape& shape = c.in(0).shape();
  const bool columns = c.i("storage_order") != 0;
  Value rest = index, number;
  int64_t factor = 1;
  std::vector<Value> at(static_cast<size_t>(shape.rank()));
  for (int d = shape.rank() - 1; d >= 2; --d) {
    at[static_cast<size_t>(d)] = ops::sub(ops::remainder(rest, padded[d]), low[static_cast<size_t>(d)]);
    rest = ops::floor_divide(rest, padded[d]);
  }
  for (int i = 2; i < shape.rank(); ++i) {
    const int d = columns ? i : shape.rank() + 1 - i;
    const Value term = ops::mul(at[static_cast<size_t>(d)], factor);
    number = number.defined() ? ops::add(number, term) : term;
    factor *= shape[d];
  }
  Ints planes(static_cast<size_t>(shape.rank()), 1);
  planes[0] = shape[0];
  planes[1] = shape[1];
  return ops::add(number, ops::reshape(ops::mul(ops::iota(0, 1, shape[0] * shape[1]), factor), planes));
}

Items max_pool(const Call& c) {
  const Value& x = c.in(0);
  const Windows w = windows_of(c, x.shape());
  const bool whole = !is_differentiable(x.dtype());
  Ints low{0, 0}, high{0, 0};
  for (size_t d = 0; d < w.kernel.size(); ++d) {
    const int64_t needed = (w.sizes[d] - 1) * w.stride[d] + (w.kernel[d] - 1) * w.dilation[d] + 1;
    low.push_back(w.low[d]);
    high.push_back(std::max<int64_t>(needed - w.low[d] - x.shape()[static_cast<int>(d) + 2], 0));
  }
  ops::MaxPoolOptions options;
  options.kernel_size = w.kernel;
  options.stride = w.stride;
  options.dilation = w.dilation;
  Value from = whole ? ops::cast(x, DType::kFloat32) : x;
  bool within = low == high;
  for (size_t d = 0; d < w.kernel.size(); ++d) within &= 2 * w.low[d] <= w.kernel[d];
  if (within && !c.wants(1)) {
    options.padding = w.low;
  } else {
    from = ops::pad(from, low, high, -std::numeric_limits<double>::infinity());
  }
  auto [values, index] = ops::max_pool_with_indices(from, options);
  for (size_t d = 0; d < w.sizes.size(); ++d)  // what a longer input would give more
    if (values.shape()[static_cast<int>(d) + 2] != w.sizes[d]) {
      values = ops::narrow(values, static_cast<int64_t>(d) + 2, 0, w.sizes[d]);
      index = ops::narrow(index, static_cast<int64_t>(d) + 2, 0, w.sizes[d]);
    }
  const Value made = whole ? ops::cast(values, x.dtype()) : values;
  return {made, c.wants(1) ? file_indices(c, index, from.shape(), low) : Value()};
}

Value max_unpool(const Call& c) {
  const Value &x = c.in(0), &index = c.in(1);
  const int dims = x.rank() - 2;
  const Ints kernel = c.is("kernel_shape"), stride = c.is("strides", Ints(static_cast<size_t>(dims), 1));
  const Ints pads = c.is("pads", Ints(2 * static_cast<size_t>(dims), 0));
  SLUICE_CHECK(dims > 0 && kernel.size() == static_cast<size_t>(dims) && stride.size() == kernel.size() &&
                   pads.size() == 2 * kernel.size(),
               "kernel, strides and pads of {}; must have a number for each spatial dim, and two", x.shape().str());
  Shape shape{x.shape()[0], x.shape()[1]};
  for (int d = 0; d < dims; ++d) {
    const auto i = static_cast<size_t>(d);
    shape.push_back((x.shape()[d + 2] - 1) * stride[i] - pads[i] - pads[i + kernel.size()] + kernel[i]);
  }
  Value flat = ops::zeros(Shape({numel(shape)}), x.dtype());
  flat = ops::scatter(flat, ops::reshape(index, {-1}), ops::reshape(x, {-1}), 0);
  const Value made = ops::reshape(flat, shape.vec());
  if (!c.has(2)) return made;
  Ints high;
  const Ints wanted = c.ints(2);
  SLUICE_CHECK(static_cast<int>(wanted.size()) == shape.rank(), "an output of {} dims; must have {}", wanted.size(),
               shape.rank());
  for (int d = 0; d < shape.rank(); ++d) high.push_back(wanted[static_cast<size_t>(d)] - shape[d]);
  return ops::pad(made, Ints(high.size(), 0), high);
}

}  // namespace

Entries pooling_entries() {
  return {
      {"AveragePool", average_pool},
      {"GlobalAveragePool", [](const Call& c) { return ops::mean(c.in(0), spatial_axes(c.in(0).rank()), true); }},
      {"GlobalMaxPool", [](const Call& c) { return ops::amax(c.in(0), spatial_axes(c.in(0).rank()), true); }},
      {"GlobalLpPool",
       [](const Call& c) {
         const auto p = static_cast<double>(c.i("p", 2));
         return ops::pow(ops::sum(ops::pow(ops::abs(c.in(0)), p), spatial_axes(c.in(0).rank()), true), 1 / p);
       }},
      {"LpPool", lp_pool},
      {"MaxPool", max_pool},
      {"MaxUnpool", max_unpool, 4},
  };
}

}  // namespace sluice::onnx
