// Reductions over axes, and along one.
#include "graph/ops/reduction.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/indexing.h"
#include "graph/ops/lines.h"
#include "graph/ops/movement.h"
#include "graph/ops/shaping.h"
#include "onnx/table.h"

namespace sluice::onnx {
namespace {

using ops::Dims;
using Fold = Value (*)(const Value& x, const Dims& dims, bool keepdim);

Value absolute_sum(const Value& x, const Dims& d, bool k) { return ops::sum(ops::abs(x), d, k); }
Value square_sum(const Value& x, const Dims& d, bool k) { return ops::sum(ops::mul(x, x), d, k); }
Value length(const Value& x, const Dims& d, bool k) { return ops::sqrt(square_sum(x, d, k)); }
Value log_sum(const Value& x, const Dims& d, bool k) { return ops::log(ops::sum(x, d, k)); }
Value log_sum_exp(const Value& x, const Dims& d, bool k) { return ops::logsumexp(x, d, k); }
Value plain_mean(const Value& x, const Dims& d, bool k) { return ops::mean(x, d, k); }

// Without elements, the extremum is what any element would replace.
Value extremum(const Value& x, const Dims& dims, bool keepdim, bool largest) {
  if (numel(x.shape()) > 0) {
    if (x.dtype() == DType::kBool) return largest ? ops::any(x, dims, keepdim) : ops::all(x, dims, keepdim);
    return largest ? ops::amax(x, dims, keepdim) : ops::amin(x, dims, keepdim);
  }
  const Shape shape = ops::sum(ops::cast(x, DType::kFloat32), dims, keepdim).shape();
  if (is_floating(x.dtype())) {
    const double infinity = std::numeric_limits<double>::infinity();
    return ops::full(shape, largest ? -infinity : infinity, x.dtype());
  }
  const bool is_signed = x.dtype() != DType::kBool && x.dtype() != DType::kUInt8;
  const double bits = static_cast<double>(8 * dtype_size(x.dtype()));
  const Value lowest = ops::full(shape, is_signed ? -std::exp2(bits - 1) : 0, x.dtype());
  return largest ? lowest : ops::bitwise_not(lowest);
}
Value largest_of(const Value& x, const Dims& d, bool k) { return extremum(x, d, k, true); }
Value smallest_of(const Value& x, const Dims& d, bool k) { return extremum(x, d, k, false); }

// `axes_in`: the version from which the axes are an input.
auto reduced(Fold fold, Value (*of_one)(const Value&), int64_t axes_in = 18) {
  return [=](const Call& c) {
    const Value& x = c.in(0);
    const Ints axes = c.version() >= axes_in ? (c.has(1) ? c.ints(1) : Ints()) : c.is("axes");
    if (axes.empty() && c.i("noop_with_empty_axes") != 0) return of_one ? of_one(x) : x;
    return ops::cast(fold(x, axes.empty() ? Dims() : Dims(axes), c.i("keepdims", 1) != 0), x.dtype());
  };
}

Value extreme_index(const Call& c, bool largest) {
  const Value& x = c.in(0);
  const int64_t axis = normalize_axis(c.i("axis"), x.rank(), "axis");
  const bool keep = c.i("keepdims", 1) != 0;
  const bool last = c.i("select_last_index") != 0;
  const Value from = last ? ops::flip(x, {axis}) : x;
  const Value at = largest ? ops::argmax(from, axis, keep) : ops::argmin(from, axis, keep);
  return last ? ops::sub(x.shape()[static_cast<int>(axis)] - 1, at) : at;
}

// Sums or products so far: backwards, and without the element itself, where that is asked for.
Value so_far(const Call& c, bool product) {
  Value x = c.in(0);
  const int64_t axis = normalize_axis(c.integer(1), x.rank(), "axis");
  const DType dtype = x.dtype();
  const int64_t size = x.shape()[static_cast<int>(axis)];
  if (size == 0) return x;
  if (c.i("reverse") != 0) x = ops::flip(x, {axis});
  if (c.i("exclusive") != 0) {
    Ints low(static_cast<size_t>(x.rank()), 0);
    const Ints none = low;
    low[static_cast<size_t>(axis)] = 1;
    x = ops::pad(ops::narrow(x, axis, 0, size - 1), low, none, product ? 1 : 0);
  }
  Value y = product ? ops::cumprod(x, axis) : ops::cumsum(x, axis);
  if (c.i("reverse") != 0) y = ops::flip(y, {axis});
  return ops::cast(y, dtype);
}

// 1 where the first largest element is.
Value hardmax(const Value& x, int64_t dim) {
  const Value at = ops::argmax(x, dim, true);
  const int64_t axis = normalize_axis(dim, x.rank(), "axis");
  Ints shape(static_cast<size_t>(x.rank()), 1);
  shape[static_cast<size_t>(axis)] = x.shape()[static_cast<int>(axis)];
  const Value positions = ops::reshape(ops::iota(0, 1, shape[static_cast<size_t>(axis)]), shape);
  return ops::cast(ops::eq(positions, at), x.dtype());
}

Items top(const Call& c) {
  const int64_t k = c.version() < 10 ? c.i("k") : c.integer(1);
  return torch_all("topk", c.in(0), k, c.i("axis", -1), c.i("largest", 1) != 0, true);
}

}  // namespace

Entries reduction_entries() {
  return {
      {"ReduceL1", reduced(absolute_sum, ops::abs), 2},
      {"ReduceL2", reduced(length, ops::abs), 2},
      {"ReduceLogSum", reduced(log_sum, ops::log), 2},
      {"ReduceLogSumExp", reduced(log_sum_exp, nullptr), 2},
      {"ReduceMax", reduced(largest_of, nullptr), 2},
      {"ReduceMean", reduced(plain_mean, nullptr), 2},
      {"ReduceMin", reduced(smallest_of, nullptr), 2},
      {"ReduceProd", reduced(ops::prod, nullptr), 2},
      {"ReduceSum", reduced(ops::sum, nullptr, 13), 2},
      {"ReduceSumSquare", reduced(square_sum, [](const Value& x) { return ops::mul(x, x); }), 2},
      {"ArgMax", [](const Call& c) { return extreme_index(c, true); }},
      {"ArgMin", [](const Call& c) { return extreme_index(c, false); }},
      {"CumSum", [](const Call& c) { return so_far(c, false); }, 2},
      {"CumProd", [](const Call& c) { return so_far(c, true); }, 2},
      {"Hardmax",
       [](const Call& c) {
         const Value& x = c.in(0);
         if (c.version() >= 13) return hardmax(x, c.i("axis", -1));
         const int axis = normalize_axis(c.i("axis", 1), x.rank(), "axis");
         const Value rows = ops::flatten(ops::unsqueeze(x, 0), 1 + axis);
         return ops::reshape(hardmax(rows, -1), x.shape().vec());
       }},
      {"TopK", top, 2},
  };
}

}  // namespace sluice::onnx
