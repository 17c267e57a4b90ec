// Torch's spelling of reading and writing at indices.
#include <limits>

#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/forms.h"
#include "graph/ops/indexing.h"
#include "graph/ops/matmul.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"

namespace sluice::ops {
namespace {

// The index before the dim in C++, after it in torch.
using OfIndex = Value (*)(const Value&, const Value&, int64_t);
using OfSource = Value (*)(const Value&, const Value&, const Value&, int64_t);

auto at_index(OfIndex f) {
  return [f](const Value& x, int64_t dim, const Value& index) { return f(x, index, dim); };
}
auto from_source(OfSource f) {
  return [f](const Value& x, int64_t dim, const Value& index, const Value& source) { return f(x, index, source, dim); };
}

Value gather_at(const Value& x, int64_t dim, const Value& index, bool) { return gather(x, index, dim); }

Value scatter_number(const Value& x, int64_t dim, const Value& index, const Operand& value) {
  if (value.is_number()) value.check_fits(x.dtype(), "scatter");
  return scatter(x, index, expand(value.to(x.dtype()), index.shape()), dim);
}

// --- Reductions into indexed elements ---

// The value that leaves others as they are when it is combined with them.
Value neutral(const std::string& reduce, const Shape& shape, DType dtype) {
  if (reduce == "prod") return full(shape, 1, dtype);
  if (reduce != "amax" && reduce != "amin") return full(shape, 0, dtype);
  const bool least = reduce == "amax";
  if (dtype == DType::kBool) return full(shape, least ? 0 : 1, dtype);
  if (is_floating(dtype)) return full(shape, (least ? -1 : 1) * std::numeric_limits<double>::infinity(), dtype);
  const int bits = 8 * static_cast<int>(dtype_size(dtype)) - (dtype == DType::kUInt8 ? 0 : 1);
  const int64_t most = bits == 63 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << bits) - 1;
  return expand(Operand(least ? (dtype == DType::kUInt8 ? int64_t{0} : -most - 1) : most).to(dtype), shape);
}

Value reduced_into(const char* name, const Value& x, int64_t dim, const Value& index, const Value& src,
                   const std::string& reduce, bool include_self) {
  const bool mean = reduce == "mean";
  SLUICE_CHECK_KIND(kRuntime, mean || reduce == "sum" || reduce == "prod" || reduce == "amax" || reduce == "amin",
                    "{}: reduce argument must be either sum, prod, mean, amax or amin, got {}.", name, reduce);
  SLUICE_CHECK_KIND(kRuntime, x.dtype() == src.dtype(), "{}: expected self.dtype to be equal to src.dtype: {} and {}",
                    name, dtype_name(x.dtype()), dtype_name(src.dtype()));
  const Value start = include_self ? x : scatter(x, index, neutral(reduce, index.shape(), x.dtype()), dim);
  if (!mean && reduce != "sum") return scatter_reduce(start, index, src, dim, reduce);
  const Value total = scatter_add(start, index, src, dim);
  if (!mean) return total;
  const Value once = ones(index.shape(), x.dtype());
  const Value count = scatter_add(include_self ? ones_like(x) : zeros_like(x), index, once, dim);
  const Value divisor = where(eq(count, 0), ones({}, x.dtype()), count);
  return is_floating(x.dtype()) ? div(total, divisor) : floor_divide(total, divisor);
}

Value scatter_reduced(const Value& x, int64_t dim, const Value& index, const Value& src, const std::string& reduce,
                      bool include_self) {
  return reduced_into("scatter_reduce", x, dim, index, src, reduce, include_self);
}

Value scatter_combined(const Value& x, int64_t dim, const Value& index, const Value& src, const std::string& reduce) {
  SLUICE_CHECK_KIND(kRuntime, reduce == "add" || reduce == "multiply",
                    "scatter: reduce argument must be either add or multiply: got {}", reduce);
  if (reduce == "add") return scatter_add(x, index, src, dim);
  return scatter_reduce(x, index, src, dim, "prod");
}
Value scatter_number_combined(const Value& x, int64_t dim, const Value& index, const Operand& value,
                              const std::string& reduce) {
  return scatter_combined(x, dim, index, expand(value.to(x.dtype()), index.shape()), reduce);
}

// --- Slices of a dim at a vector of indices ---

// The index of each of their elements, of the shape that slices of x at so many indices have.
Value slice_indices(const char* name, const Value& x, int64_t dim, const Value& index) {
  const int axis = normalize_axis(dim, x.rank(), name);
  SLUICE_CHECK_KIND(kIndex, index.rank() <= 1, "{}(): Index should have dimension 1 or 0 (got {})", name, index.rank());
  SLUICE_CHECK_KIND(kIndex, index.dtype() == DType::kInt64 || index.dtype() == DType::kInt32,
                    "{}(): Expected a long tensor for index, but got {}", name, dtype_name(index.dtype()));
  Ints along(std::max(x.rank(), 1), 1);
  Shape shape = x.rank() == 0 ? Shape{1} : x.shape();
  along[axis] = shape[axis] = numel(index.shape());
  return expand(reshape(index, along), shape);
}

Value counted_from_end(const Value& index, int64_t size) { return ops::flat_index({index}, {size}); }

Value index_fill(const Value& x, int64_t dim, const Value& index, const Operand& value) {
  SLUICE_CHECK_KIND(kRuntime, value.is_number() || value.value().rank() == 0,
                    "index_fill_: only supports a 0-dimensional value tensor, but got tensor with {} dimension(s).",
                    value.value().rank());
  if (value.is_number()) value.check_fits(x.dtype(), "index_fill");
  SLUICE_CHECK_KIND(kRuntime, index.rank() <= 1, "index_fill(): Index has to be a vector/scalar: got {} dims",
                    index.rank());
  SLUICE_CHECK_KIND(kIndex, index.dtype() == DType::kInt64, "index_fill(): Expected dtype int64 for index: got {}",
                    dtype_name(index.dtype()));
  const Value at = slice_indices("index_fill", x, dim, index);
  const int64_t size = x.rank() == 0 ? 1 : x.shape()[normalize_axis(dim, x.rank(), "index_fill")];
  // An index that is named twice gets the value once.
  const Value filled =
      scatter(zeros(x.shape(), DType::kBool), counted_from_end(at, size), ones(at.shape(), DType::kBool), dim);
  return where(filled, value.to(x.dtype()), x);
}

void check_slices(const char* name, const Value& x, const Value& at, const Value& source) {
  SLUICE_CHECK_KIND(kRuntime, x.dtype() == source.dtype(),
                    "{}(): self and source expected to have the same dtype, but got (self) {} and (source) {}", name,
                    dtype_name(x.dtype()), dtype_name(source.dtype()));
  SLUICE_CHECK_KIND(kIndex, source.shape() == at.shape() || (x.rank() == 0 && numel(source.shape()) == 1),
                    "{}(): Source/destination tensor must have same slice shapes: source is {}; must be {}", name,
                    source.shape().str(), at.shape().str());
}

Value index_copy(const Value& x, int64_t dim, const Value& index, const Value& source) {
  SLUICE_CHECK_KIND(kRuntime, index.dtype() == DType::kInt64,
                    "index_copy(): Expected a long tensor for index, but got {}", dtype_name(index.dtype()));
  const Value at = slice_indices("index_copy", x, dim, index);
  check_slices("index_copy", x, at, source);
  return scatter(x, at, reshape(source, at.shape().vec()), dim);
}

Value index_reduce(const Value& x, int64_t dim, const Value& index, const Value& source, const std::string& reduce,
                   bool include_self) {
  SLUICE_CHECK_KIND(kRuntime, reduce != "sum",
                    "index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {}", reduce);
  const Value at = slice_indices("index_reduce", x, dim, index);
  check_slices("index_reduce", x, at, source);
  return reduced_into("index_reduce", x, dim, at, reshape(source, at.shape().vec()), reduce, include_self);
}

// --- Elements of the flattened tensor ---

Value flat_index(const char* name, const Value& x, const Value& index) {
  SLUICE_CHECK_KIND(kIndex, index.dtype() == DType::kInt64, "{}(): Expected a long tensor for index, but got {}", name,
                    dtype_name(index.dtype()));
  SLUICE_CHECK_KIND(kIndex, numel(x.shape()) > 0 || numel(index.shape()) == 0,
                    "{}(): tried to take from an empty tensor", name);
  return counted_from_end(reshape(index, {-1}), numel(x.shape()));
}

Value take(const Value& x, const Value& index) {
  return reshape(index_select(reshape(x, {-1}), flat_index("take", x, index), 0), index.shape().vec());
}

Value put(const Value& x, const Value& index, const Value& source, bool accumulate) {
  SLUICE_CHECK_KIND(kIndex, numel(index.shape()) == numel(source.shape()),
                    "put_(): Expected source and index to have the same number of elements, but got source.numel() = "
                    "{}, index.numel() = {}",
                    numel(source.shape()), numel(index.shape()));
  SLUICE_CHECK_KIND(kRuntime, x.dtype() == source.dtype(),
                    "put_(): self and source expected to have the same dtype, but got self.dtype = {} and "
                    "source.dtype = {}",
                    dtype_name(x.dtype()), dtype_name(source.dtype()));
  const Value at = flat_index("put_", x, index), flat = reshape(x, {-1}), values = reshape(source, {-1});
  return reshape(accumulate ? index_add(flat, at, values, 0) : scatter(flat, at, values, 0), x.shape().vec());
}

// The n-th element that the mask chooses becomes source's n-th.
Value masked_scatter(const Value& x, const Value& mask, const Value& source) {
  SLUICE_CHECK_KIND(kRuntime, mask.dtype() == DType::kBool,
                    "masked_scatter_: only supports boolean masks, but got mask with dtype {}",
                    dtype_name(mask.dtype()));
  SLUICE_CHECK_KIND(kRuntime, x.dtype() == source.dtype(),
                    "masked_scatter: expected self and source to have same dtypes but got {} and {}",
                    dtype_name(x.dtype()), dtype_name(source.dtype()));
  const Shape shape = broadcast_shapes(x.shape(), mask.shape(), "masked_scatter");
  const Value chosen = reshape(expand(mask, shape), {-1}), values = reshape(source, {-1});
  if (numel(shape) == 0) return expand(x, shape);
  const Value order = sub(cumsum(chosen, 0), 1);
  if (numel(source.shape()) == 0) return where(expand(mask, shape), zeros({}, x.dtype()), x);
  const Value taken = index_select(values, where(chosen, order, int64_t{0}), 0);
  return where(expand(mask, shape), reshape(taken, shape.vec()), expand(x, shape));
}

Value index_add_scaled(const Value& x, int64_t dim, const Value& index, const Value& source, const Operand& alpha) {
  return index_add(x, index, scaled_by(source, alpha), dim);
}

// Without a dim, of the flattened tensors.
Value take_along_dim(const Value& x, const Value& indices, const std::optional<int64_t>& dim) {
  if (!dim) return take_along_dim(flatten(x), flatten(indices), 0);
  const bool fits = indices.dtype() == DType::kInt64 || indices.dtype() == DType::kInt32;
  if (x.rank() == 0 || x.rank() != indices.rank() || !fits) return take_along(x, indices, *dim);
  const int64_t size = x.shape()[normalize_axis(*dim, x.rank(), "take_along_dim")];
  return take_along(x, counted_from_end(cast(indices, DType::kInt64), size), *dim);
}

}  // namespace

Value index_put(const Value& x, const std::vector<Value>& indices, const Value& values, bool accumulate) {
  SLUICE_CHECK_KIND(kIndex, static_cast<int>(indices.size()) <= x.rank(),
                    "index_put_: too many indices for tensor of dimension {} (got {})", x.rank(), indices.size());
  SLUICE_CHECK_KIND(
      kRuntime, x.dtype() == values.dtype(),
      "index_put_: Index put requires the source and destination dtypes match, got {} for the destination and {} for "
      "the source.",
      dtype_name(x.dtype()), dtype_name(values.dtype()));
  if (indices.empty()) return accumulate ? add(x, values) : expand(values, x.shape());
  Shape shape;
  for (const Value& index : indices) {
    SLUICE_CHECK_KIND(kIndex, index.dtype() == DType::kInt64 || index.dtype() == DType::kInt32,
                      "index_put_: tensors used as indices must be long or int: got {}; use x[mask] = value for masks",
                      dtype_name(index.dtype()));
    shape = broadcast_shapes(shape, index.shape(), "index_put_");
  }
  const int used = static_cast<int>(indices.size());
  std::vector<Value> each;
  Ints sizes;
  int64_t rows = 1, rest = 1;
  Shape result = shape;
  for (int i = 0; i < x.rank(); ++i) {
    if (i >= used) {
      rest *= x.shape()[i];
      result.push_back(x.shape()[i]);
      continue;
    }
    each.push_back(expand(cast(indices[i], DType::kInt64), shape));
    sizes.push_back(x.shape()[i]);
    rows *= x.shape()[i];
  }
  const Value places = reshape(flat_index(each, sizes), {-1}), lines = reshape(x, {rows, rest});
  const Value source = reshape(expand(values, result), {numel(shape), rest});
  const Value y = accumulate ? index_add(lines, places, source, 0)
                             : scatter(lines, expand(reshape(places, {-1, 1}), source.shape()), source, 0);
  return reshape(y, x.shape().vec());
}

std::vector<Form> indexing_forms() {
  return {
      {.doc = "Elements at index[i][j].. along a dim. torch.gather.",
       .overloads = {overload("gather(Tensor input, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor",
                              &gather_at)},
       .out = true},
      {.doc = "input with src, or a number, written at the indices along a dim; of equal ones the last wins. "
              "torch.scatter.",
       .overloads = {overload("scatter(Tensor input, int dim, Tensor index, Tensor src) -> Tensor",
                              from_source(&scatter)),
                     overload("scatter(Tensor input, int dim, Tensor index, Scalar value) -> Tensor", &scatter_number),
                     overload("scatter(Tensor input, int dim, Tensor index, Tensor src, *, str reduce) -> Tensor",
                              &scatter_combined),
                     overload("scatter(Tensor input, int dim, Tensor index, Scalar value, *, str reduce) -> Tensor",
                              &scatter_number_combined)},
       .in_place = true,
       .out = true},
      {.doc = "input with src added at the indices along a dim. torch.scatter_add.",
       .overloads = {overload("scatter_add(Tensor input, int dim, Tensor index, Tensor src) -> Tensor",
                              from_source(&scatter_add))},
       .in_place = true,
       .out = true},
      {.doc = "The entries of a dim that a vector of indices names. torch.index_select.",
       .overloads = {overload("index_select(Tensor input, int dim, Tensor index) -> Tensor", at_index(&index_select))},
       .out = true},
      {.doc =
           "input with alpha * source added at the entries of a dim that a vector of indices names. torch.index_add.",
       .overloads = {overload(
           "index_add(Tensor input, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor",
           &index_add_scaled)},
       .in_place = true,
       .out = true},
      {.doc = "Elements at indices along a dim, both broadcast; no dim: of the flattened tensor. torch.take_along_dim.",
       .overloads = {overload("take_along_dim(Tensor input, Tensor indices, int? dim=None) -> Tensor",
                              &take_along_dim)},
       .out = true},
      {.doc = "input with src combined into the indices along a dim: 'sum', 'prod', 'mean', 'amax' or 'amin', with or "
              "without what was there. torch.scatter_reduce.",
       .overloads = {overload("scatter_reduce(Tensor input, int dim, Tensor index, Tensor src, str reduce, *, bool "
                              "include_self=True) -> Tensor",
                              &scatter_reduced)},
       .in_place = true,
       .out = true},
      {.doc = "input with slices of source combined into the entries of a dim: 'prod', 'mean', 'amax' or 'amin'. "
              "torch.index_reduce.",
       .overloads = {overload("index_reduce(Tensor input, int dim, Tensor index, Tensor source, str reduce, *, bool "
                              "include_self=True) -> Tensor",
                              &index_reduce)},
       .in_place = true,
       .out = true},
      {.doc = "input with the entries of a dim that a vector of indices names set to a value. torch.index_fill.",
       .overloads = {overload("index_fill(Tensor input, int dim, Tensor index, Operand value) -> Tensor", &index_fill)},
       .in_place = true},
      {.doc = "input with slices of source at the entries of a dim that a vector of indices names. torch.index_copy.",
       .overloads = {overload("index_copy(Tensor input, int dim, Tensor index, Tensor source) -> Tensor", &index_copy)},
       .in_place = true,
       .out = true},
      {.doc = "The elements at indices into the flattened tensor. torch.take.",
       .overloads = {overload("take(Tensor input, Tensor index) -> Tensor", &take)},
       .out = true},
      {.doc = "input with source written, or added, at indices into the flattened tensor. torch.put.",
       .overloads = {overload("put(Tensor input, Tensor index, Tensor source, bool accumulate=False) -> Tensor", &put)},
       .in_place = true},
      {.doc = "input with the elements that mask chooses taken from source, in order. torch.masked_scatter.",
       .overloads = {overload("masked_scatter(Tensor input, Tensor mask, Tensor source) -> Tensor", &masked_scatter)},
       .in_place = true},
  };
}

}  // namespace sluice::ops
