// Ops that read and write at indices, and choose by conditions.
#include "graph/ops/indexing.h"

#include <numeric>

#include "base/error.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/lines.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"
#include "onnx/table.h"
#include "tensor/tensor.h"

namespace sluice::onnx {
namespace {

// Negative indices count from the end.
Value counted(const Value& index, int64_t size) {
  const Value wide = ops::cast(index, DType::kInt64);
  return ops::where(ops::lt(wide, 0), ops::add(wide, size), wide);
}

Value gathered(const Call& c) {
  const Value& x = c.in(0);
  const int axis = normalize_axis(c.i("axis"), x.rank(), "axis");
  const Value rows = ops::index_select(x, ops::reshape(counted(c.in(1), x.shape()[axis]), {-1}), axis);
  Ints shape = x.shape().vec();
  shape.erase(shape.begin() + axis);
  const Ints index = c.in(1).shape().vec();
  shape.insert(shape.begin() + axis, index.begin(), index.end());
  return ops::reshape(rows, shape);
}

Value gathered_elements(const Call& c) {
  const Value& x = c.in(0);
  const int axis = normalize_axis(c.i("axis"), x.rank(), "axis");
  return ops::gather(x, counted(c.in(1), x.shape()[axis]), axis);
}

// Rows of the first `depth` dims of `shape` by number, from tuples of indices in the last dim of `index`.
Value row_numbers(const Value& index, const Ints& sizes) {
  Value number;
  for (size_t d = 0; d < sizes.size(); ++d) {
    const Value at = counted(ops::select(index, -1, static_cast<int64_t>(d)), sizes[d]);
    number = number.defined() ? ops::add(ops::mul(number, sizes[d]), at) : at;
  }
  if (number.defined()) return number;
  Ints shape = index.shape().vec();
  shape.pop_back();
  return ops::zeros(Shape(shape), DType::kInt64);
}

int64_t product(const Ints& sizes) { return numel(Shape(sizes)); }
Ints part(const Ints& all, size_t first, size_t last) {
  return {all.begin() + static_cast<int64_t>(first), all.begin() + static_cast<int64_t>(last)};
}

Value gathered_nd(const Call& c) {
  const Value &x = c.in(0), &index = c.in(1);
  const auto batch = static_cast<size_t>(c.i("batch_dims"));
  const Ints shape = x.shape().vec(), at = index.shape().vec();
  SLUICE_CHECK(!at.empty() && batch < at.size() && batch + static_cast<size_t>(at.back()) <= shape.size(),
               "indices {} into {} behind {} dims of a batch; must have a number for each of some dims",
               index.shape().str(), x.shape().str(), batch);
  const size_t last = batch + static_cast<size_t>(at.back());
  const Ints lead = part(shape, 0, batch), sizes = part(shape, batch, last), rest = part(shape, last, shape.size());
  const Ints tuples = part(at, batch, at.size() - 1);
  Value rows = ops::reshape(row_numbers(index, sizes), {product(lead), product(tuples)});
  const Value first = ops::mul(ops::iota(0, 1, product(lead)), product(sizes));
  rows = ops::add(rows, ops::unsqueeze(first, 1));
  const Value table = ops::reshape(x, {product(lead) * product(sizes), product(rest)});
  Ints result = part(at, 0, at.size() - 1);
  result.insert(result.end(), rest.begin(), rest.end());
  return ops::reshape(ops::index_select(table, ops::reshape(rows, {-1}), 0), result);
}

Value scattered(const Value& x, const Value& index, const Value& updates, int64_t dim, const std::string& reduction) {
  if (reduction == "none") return ops::scatter(x, index, updates, dim);
  if (reduction == "add") return ops::scatter_add(x, index, updates, dim);
  if (reduction == "mul") return ops::scatter_reduce(x, index, updates, dim, "prod");
  if (reduction == "max") return ops::scatter_reduce(x, index, updates, dim, "amax");
  if (reduction == "min") return ops::scatter_reduce(x, index, updates, dim, "amin");
  fail(ErrorKind::kValue, "reduction '{}'; must be none, add, mul, max or min", reduction);
}

Value scattered_elements(const Call& c) {
  const Value& x = c.in(0);
  const int axis = normalize_axis(c.i("axis"), x.rank(), "axis");
  return scattered(x, counted(c.in(1), x.shape()[axis]), c.in(2), axis, c.s("reduction", "none"));
}

Value scattered_nd(const Call& c) {
  const Value &x = c.in(0), &index = c.in(1), &updates = c.in(2);
  const Ints shape = x.shape().vec(), at = index.shape().vec();
  SLUICE_CHECK(!at.empty() && static_cast<size_t>(at.back()) <= shape.size(),
               "indices {} into {}; must have a number for each of some dims", index.shape().str(), x.shape().str());
  const auto depth = static_cast<size_t>(at.back());
  const Ints sizes = part(shape, 0, depth), rest = part(shape, depth, shape.size());
  const int64_t tuples = product(part(at, 0, at.size() - 1)), width = product(rest);
  const Value rows = ops::reshape(row_numbers(index, sizes), {tuples, 1});
  const Value table = ops::reshape(x, {product(sizes), width});
  const Value made = scattered(table, ops::expand(rows, Shape({tuples, width})), ops::reshape(updates, {tuples, width}),
                               0, c.s("reduction", "none"));
  return ops::reshape(made, shape);
}

// Rows of a cache from a position on; in a ring where it is circular.
Value cached(const Call& c) {
  const Value &cache = c.in(0), &update = c.in(1);
  const int axis = normalize_axis(c.i("axis", -2), cache.rank(), "axis");
  const int64_t room = cache.shape()[axis], n = update.shape()[axis];
  Ints along(static_cast<size_t>(cache.rank()), 1), batch = along;
  along[static_cast<size_t>(axis)] = n;
  batch[0] = cache.shape()[0];
  Value at = ops::reshape(ops::iota(0, 1, n), along);
  if (c.has(2)) at = ops::add(at, ops::reshape(ops::cast(c.in(2), DType::kInt64), batch));
  if (c.s("mode", "linear") == "circular") at = ops::remainder(at, room);
  return ops::scatter(cache, ops::expand(at, update.shape()), update, axis);
}

Value one_hot(const Call& c) {
  const int64_t depth = static_cast<int64_t>(c.number(1));
  SLUICE_CHECK(depth >= 0, "depth {}; must not be negative", depth);
  const int axis = normalize_axis(c.i("axis", -1), c.in(0).rank() + 1, "axis");
  const Value index = ops::unsqueeze(counted(c.in(0), depth), axis);
  Ints along(static_cast<size_t>(index.rank()), 1);
  along[static_cast<size_t>(axis)] = depth;
  const Value hot = ops::eq(index, ops::reshape(ops::iota(0, 1, depth), along));
  return ops::where(hot, ops::select(c.in(2), 0, 1), ops::select(c.in(2), 0, 0));
}

Value compressed(const Call& c) {
  Value x = c.in(0);
  int64_t axis = 0;
  if (c.has_attr("axis"))
    axis = normalize_axis(c.i("axis"), x.rank(), "axis");
  else
    x = ops::reshape(x, {-1});
  Ints chosen;
  const Ints conditions = c.ints(1);
  SLUICE_CHECK(static_cast<int64_t>(conditions.size()) <= x.shape()[static_cast<int>(axis)],
               "{} conditions of {} elements; must not be more", conditions.size(), x.shape()[static_cast<int>(axis)]);
  for (size_t i = 0; i < conditions.size(); ++i)
    if (conditions[i] != 0) chosen.push_back(static_cast<int64_t>(i));
  const Value at = Tensor::from_host({DType::kInt64, {static_cast<int64_t>(chosen.size())}}, chosen.data());
  return ops::index_select(x, at, axis);
}

Value nonzero(const Call& c) {
  check_known(c.in(0), c.where(), "its length");
  const Value x = c.in(0).rank() == 0 ? ops::reshape(c.in(0), {1}) : c.in(0);
  return ops::transpose(torch1("nonzero", x), 0, 1);
}

// Distinct elements or slices, where the first of each is, which each one is, and how many there are.
Items unique(const Call& c) {
  const Value& x = c.in(0);
  const bool flat = !c.has_attr("axis");
  const int64_t axis = flat ? 0 : normalize_axis(c.i("axis"), x.rank(), "axis");
  check_known(x, c.where(), "its length");
  FormArg dim = NoAttr();
  if (!flat) dim = axis;
  std::vector<Value> found = torch_all("unique", x, true, true, true, std::move(dim));
  Value values = found[0], inverse = ops::reshape(found[1], {-1}), counts = found[2];
  const int64_t n = counts.shape()[0], all = inverse.shape()[0];
  Value first = ops::full(Shape({n}), static_cast<double>(all), DType::kInt64);
  first = ops::scatter_reduce(first, inverse, ops::iota(0, 1, all), 0, "amin");
  if (c.i("sorted", 1) == 0) {  // in the order in which they are met
    const Value order = ops::argsort(first, 0);
    values = ops::index_select(values, order, axis);
    first = ops::index_select(first, order, 0);
    counts = ops::index_select(counts, order, 0);
    inverse = ops::index_select(ops::argsort(order, 0), inverse, 0);
  }
  return {values, first, inverse, counts};
}

}  // namespace

Entries indexing_entries() {
  return {
      {"Compress", compressed, 2},
      {"Gather", gathered},
      {"GatherElements", gathered_elements},
      {"GatherND", gathered_nd},
      {"NonZero", nonzero},
      {"OneHot", one_hot, 2},
      {"Scatter", scattered_elements},
      {"ScatterElements", scattered_elements},
      {"ScatterND", scattered_nd},
      {"TensorScatter", cached},
      {"Unique", unique},
  };
}

}  // namespace sluice::onnx
