// Public functions whose results are as long as the data say. While a graph is built they have no shape: those that can
// are given a bound (a size, a length at least), the others refuse and say what to write.
#include <algorithm>
#include <numeric>

#include "graph/ops/activation.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/forms.h"
#include "graph/ops/indexing.h"
#include "graph/ops/lines.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"
#include "graph/tape.h"
#include "tensor/chosen.h"
#include "tensor/forms/forms.h"
#include "tensor/forms/host_values.h"
#include "tensor/tensor.h"

namespace sluice {
namespace {

using ops::Operand;
using OptionalInt = std::optional<int64_t>;

Value indices_of(const Ints& indices) {
  return Tensor::from_host({DType::kInt64, {static_cast<int64_t>(indices.size())}}, indices.data());
}

constexpr const char* kOutside =
    "use nonzero_static(size=...), which has room for so many, where(condition, x, y), or use it outside";

// The multi-indices of elements that are not zero, one row each.
Value nonzero_rows(const Value& x) {
  const Chosen chosen(x, "nonzero", kOutside);
  const Value rows =
      x.rank() > 0 ? ops::stack(chosen.columns(), 1) : ops::narrow(ops::unsqueeze(chosen.at(), 1), 1, 0, 0);
  return chosen.rows(rows);
}

// As torch: of a tensor without dims as of one element.
std::vector<Value> nonzero_columns(const Value& x) {
  const Chosen chosen(x.rank() == 0 ? ops::reshape(x, {1}) : x, "nonzero", kOutside);
  std::vector<Value> columns = chosen.columns();
  for (Value& column : columns) column = chosen.rows(column);
  return columns;
}

FormResult nonzero(const Value& x, bool as_tuple) {
  if (as_tuple) return nonzero_columns(x);
  return nonzero_rows(x);
}

Value argwhere(const Value& x) { return nonzero_rows(x); }

// `size` rows: the first elements that are not zero, then rows of fill_value.
Value nonzero_static(const Value& x, int64_t size, int64_t fill_value) {
  SLUICE_CHECK_KIND(kRuntime, size >= 0, "nonzero_static: 'size' must be an non-negative integer: got {}", size);
  const int rank = x.rank();
  const int64_t n = numel(x.shape());
  if (n == 0 || size == 0 || rank == 0) return ops::full({size, rank}, static_cast<double>(fill_value), DType::kInt64);
  const Value zero = ops::eq(ops::reshape(x, {-1}), 0);
  Value at = ops::narrow(ops::argsort(ops::cast(zero, DType::kUInt8), 0), 0, 0, std::min(n, size));
  if (size > n) at = ops::pad(at, {0}, {size - n});
  const Value there = ops::lt(ops::iota(0, 1, size), ops::sub(n, ops::sum(zero)));
  std::vector<Value> columns;
  for (int d = rank - 1; d >= 0; --d) {
    const int64_t length = x.shape()[d];
    columns.insert(columns.begin(), ops::where(there, ops::remainder(at, length), fill_value));
    at = ops::floor_divide(at, length);
  }
  return ops::stack(columns, 1);
}

Value where(const Value& condition, const Operand& a, const Operand& b) {
  return ops::where(condition.dtype() == DType::kUInt8 ? ops::cast(condition, DType::kBool) : condition, a, b);
}

Value masked_select(const Value& x, const Value& mask) {
  SLUICE_CHECK_KIND(kRuntime, mask.dtype() == DType::kBool, "masked_select: expected BoolTensor for mask: got {}",
                    dtype_name(mask.dtype()));
  const Shape shape = broadcast_shapes(x.shape(), mask.shape(), "masked_select");
  const Chosen chosen(ops::expand(mask, shape), "masked_select",
                      "use where(mask, x, 0) and the number of elements, mask.sum(), or use it outside");
  const Value elements = ops::flatten(ops::expand(filled_up(x, 0, x.rank()), shape));
  return chosen.rows(ops::index_select(elements, chosen.at(), 0));
}

// Masks among the indices stand for the positions where they hold. One of x's shape needs none, so it traces.
Value index_put(const Value& x, const std::vector<Value>& indices, const Value& values, bool accumulate) {
  const auto is_mask = [](const Value& index) {
    return index.dtype() == DType::kBool || index.dtype() == DType::kUInt8;
  };
  if (indices.size() == 1 && is_mask(indices[0]) && indices[0].shape() == x.shape() && numel(values.shape()) == 1 &&
      values.dtype() == x.dtype()) {
    const Value one = ops::reshape(values, {}), chosen = ops::cast(indices[0], DType::kBool);
    return ops::where(chosen, accumulate ? ops::add(x, one) : one, x);
  }
  std::vector<Value> places;
  for (const Value& index : indices) {
    if (!is_mask(index)) {
      places.push_back(index);
      continue;
    }
    const int first = static_cast<int>(places.size());
    for (int d = 0; d < index.rank(); ++d)
      SLUICE_CHECK_KIND(kIndex, first + d < x.rank() && index.shape()[d] == x.shape()[first + d],
                        "index_put_: The shape of the mask {} at index {} does not match the shape of the indexed "
                        "tensor {} at index {}",
                        index.shape().str(), d, x.shape().str(), first + d);
    for (const Value& column : nonzero_columns(index)) places.push_back(column);
  }
  return ops::index_put(x, places, values, accumulate);
}

// --- Distinct elements ---

constexpr const char* kWhole = "use it outside, or sort() and compare neighbours";

struct Runs {     // of lines along the first dim, sorted or not
  Chosen starts;  // where each begins
  Value numbers;  // per line: which run it is of
};

Runs runs_of(const Value& lines, const char* name) {
  const int64_t n = lines.shape()[0];
  const Value first = ops::ones({std::min<int64_t>(n, 1)}, DType::kBool);
  Value changes = first;
  if (n > 1) {
    Value differs = ops::ne(ops::narrow(lines, 0, 1, n - 1), ops::narrow(lines, 0, 0, n - 1));
    if (lines.rank() > 1) differs = ops::any(ops::reshape(differs, {n - 1, -1}), Ints{1});
    changes = ops::concat(std::vector{first, differs}, 0);
  }
  return {Chosen(changes, name, kWhole), ops::sub(ops::cumsum(changes, 0), 1)};
}

Value lengths_of(const Runs& runs) {
  const Value none = ops::zeros(runs.starts.at().shape(), DType::kInt64);
  return runs.starts.rows(ops::index_add(none, runs.numbers, ops::ones_like(runs.numbers), 0));
}

FormResult with_parts(const Value& values, const Value& inverse, const Value& counts) {
  if (!inverse.defined() && !counts.defined()) return values;
  std::vector<Value> parts = {values};
  if (inverse.defined()) parts.push_back(inverse);
  if (counts.defined()) parts.push_back(counts);
  return parts;
}

template <class T>
Ints order_as(const Value& lines, DType dtype) {
  const std::vector<T> values = host_values<T>(lines, dtype);
  const int64_t n = lines.shape()[0];
  const auto length = static_cast<std::ptrdiff_t>(n == 0 ? 0 : values.size() / static_cast<size_t>(n));
  Ints order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const auto x = values.begin() + a * length, y = values.begin() + b * length;
    return std::lexicographical_compare(x, x + length, y, y + length);
  });
  return order;
}

// The order of lines of equal length, by their first elements that differ.
Value order_of_lines(const char* name, const Value& lines) {
  if (lines.impl()->traced()) refuse_length(name, kWhole);
  return indices_of(is_floating(lines.dtype()) ? order_as<double>(lines, DType::kFloat64)
                                               : order_as<int64_t>(lines, DType::kInt64));
}

FormResult unique_of(const char* name, const Value& x, bool sorts, bool return_inverse, bool return_counts,
                     const OptionalInt& dim) {
  const int axis = dim ? normalize_axis(*dim, x.rank(), name) : 0;
  SLUICE_CHECK_KIND(kIndex, !dim || x.rank() > 0, "{}: Dimension specified as {} but tensor has no dimensions", name,
                    dim.value_or(0));
  SLUICE_CHECK_KIND(kRuntime, !dim || numel(x.shape()) > 0 || x.shape()[axis] == 0,
                    "{}: There are 0 sized dimensions, and they aren't selected, so unique cannot be applied", name);
  const Value lines = dim && x.rank() > 0 ? ops::movedim(x, axis, 0) : ops::reshape(x, {-1});
  const int64_t n = lines.shape()[0];
  Value order;
  if (sorts && lines.rank() == 1)
    order = ops::argsort(lines, 0);
  else if (sorts)
    order = order_of_lines(name, lines);
  const Value ordered = sorts ? ops::index_select(lines, order, 0) : lines;
  const Runs runs = runs_of(ordered, name);
  Value inverse, counts;
  if (return_inverse) {
    inverse = sorts ? ops::scatter(ops::zeros({n}, DType::kInt64), order, runs.numbers, 0) : runs.numbers;
    if (!dim) inverse = ops::reshape(inverse, x.shape().vec());
  }
  if (return_counts) counts = lengths_of(runs);
  const Value found = runs.starts.rows(ops::index_select(ordered, runs.starts.at(), 0));
  return with_parts(dim && x.rank() > 0 ? Value(Tensor(ops::movedim(found, 0, axis)).contiguous()) : found, inverse,
                    counts);
}

FormResult unique(const Value& x, bool, bool return_inverse, bool return_counts, const OptionalInt& dim) {
  return unique_of("unique", x, true, return_inverse, return_counts, dim);
}
FormResult unique_consecutive(const Value& x, bool return_inverse, bool return_counts, const OptionalInt& dim) {
  return unique_of("unique_consecutive", x, false, return_inverse, return_counts, dim);
}

// --- Counts and repetitions ---

int64_t number(const Value& x) {
  const GradMode no_grad(false);
  return std::get<int64_t>(Tensor(ops::cast(x, DType::kInt64)).detach().item());
}

Value bincount(const Value& x, const Value& weights, int64_t minlength) {
  SLUICE_CHECK_KIND(kRuntime, minlength >= 0, "bincount: minlength should be >= 0: got {}", minlength);
  SLUICE_CHECK_KIND(kRuntime, x.rank() == 1 && is_integral(x.dtype()) && x.dtype() != DType::kBool,
                    "bincount: only supports 1-d non-negative integral inputs: got {}", x.type().str());
  SLUICE_CHECK_KIND(kRuntime, !weights.defined() || weights.shape() == x.shape(),
                    "bincount: weights should be 1-d and have the same length as input: got {} for {}",
                    weights.shape().str(), x.shape().str());
  int64_t length = minlength;
  if (x.impl()->traced()) {
    SLUICE_CHECK_KIND(kRuntime, minlength > 0,
                      "bincount: the tensor is traced; its result has no shape while a graph is built: give minlength, "
                      "which is then the length");
  } else if (numel(x.shape()) > 0) {
    SLUICE_CHECK_KIND(kRuntime, number(ops::amin(x)) >= 0,
                      "bincount: only supports 1-d non-negative integral inputs: got {}", number(ops::amin(x)));
    length = std::max(length, number(ops::amax(x)) + 1);
  }
  DType dtype = DType::kInt64;
  if (weights.defined() && numel(x.shape()) > 0)
    dtype = weights.dtype() == DType::kFloat32 ? DType::kFloat32 : DType::kFloat64;
  const Value added = weights.defined() ? ops::cast(weights, dtype) : ops::ones(x.shape(), dtype);
  return ops::index_add(ops::zeros({length}, dtype), ops::cast(x, DType::kInt64), added, 0);
}

// The tensor whose entries are repeated: without a dim all elements in a line.
Value repeated_along(const Value& input, const OptionalInt& dim) {
  SLUICE_CHECK_KIND(kIndex, !dim || input.rank() > 0,
                    "repeat_interleave: Dimension specified as {} but tensor has no dimensions", *dim);
  return dim ? input : ops::reshape(input, {-1});
}

Value repeat_evenly(const Value& input, int64_t repeats, const OptionalInt& dim, const OptionalInt& output_size) {
  SLUICE_CHECK_KIND(kRuntime, repeats >= 0, "repeat_interleave: Repeats must be non-negative: got {}", repeats);
  const Value x = repeated_along(input, dim);
  const int axis = normalize_axis(dim.value_or(0), x.rank(), "repeat_interleave");
  Shape spread = x.shape(), shape = x.shape();
  spread.insert(axis + 1, repeats);
  shape[axis] *= repeats;
  SLUICE_CHECK_KIND(kRuntime, !output_size || *output_size == shape[axis],
                    "repeat_interleave: Invalid output_size, expected {} but got {}", shape[axis], *output_size);
  return ops::reshape(ops::expand(ops::unsqueeze(x, axis + 1), spread), shape.vec());
}

// Entry i as often as repeats[i] says: the number of repetitions that have ended before each.
Value repeated_indices(const Value& repeats, const OptionalInt& output_size) {
  SLUICE_CHECK_KIND(kRuntime, repeats.rank() == 1, "repeat_interleave: only accept 1D vector as repeat: got {} dims",
                    repeats.rank());
  SLUICE_CHECK_KIND(kRuntime, repeats.dtype() == DType::kInt64 || repeats.dtype() == DType::kInt32,
                    "repeat_interleave: repeats has to be Long or Int tensor: got {}", dtype_name(repeats.dtype()));
  const int64_t n = repeats.shape()[0];
  if (n == 0) return ops::zeros({0}, repeats.dtype());  // whatever output_size says
  const Value ends = ops::cumsum(ops::cast(repeats, DType::kInt64), 0);
  int64_t total = output_size.value_or(0);
  if (!repeats.impl()->traced()) {
    SLUICE_CHECK_KIND(kRuntime, number(ops::amin(repeats)) >= 0, "repeat_interleave: repeats can not be negative");
    total = number(ops::narrow(ends, 0, n - 1, 1));
    SLUICE_CHECK_KIND(kRuntime, !output_size || *output_size == total,
                      "repeat_interleave: allocated size does not match required size: output_size is {}; must be {}",
                      *output_size, total);
  } else {
    SLUICE_CHECK_KIND(kRuntime, output_size.has_value(),
                      "repeat_interleave: repeats are traced; the result has no shape while a graph is built: give "
                      "output_size");
  }
  const Value ended = ops::index_add(ops::zeros({total + 1}, DType::kInt64), ends, ops::ones_like(ends), 0);
  return ops::narrow(ops::cumsum(ended, 0), 0, 0, total);
}

Value repeat_each(const Value& input, const Value& repeats, const OptionalInt& dim, const OptionalInt& output_size) {
  const Value x = repeated_along(input, dim);
  const int axis = normalize_axis(dim.value_or(0), x.rank(), "repeat_interleave");
  Value each = repeats.rank() == 0 ? ops::reshape(repeats, {1}) : repeats;
  if (each.rank() == 1 && each.shape()[0] == 1) each = ops::expand(each, {x.shape()[axis]});
  SLUICE_CHECK_KIND(
      kRuntime, each.rank() == 1 && each.shape()[0] == x.shape()[axis],
      "repeat_interleave: repeats must have the same size as input along dim, but got repeats of shape {} "
      "and input of size {}",
      each.shape().str(), x.shape()[axis]);
  return ops::index_select(x, repeated_indices(each, output_size), axis);
}

Value combinations(const Value& x, int64_t r, bool with_replacement) {
  SLUICE_CHECK_KIND(kRuntime, x.rank() == 1, "combinations: Expect a 1D vector, but got shape {}", x.shape().str());
  SLUICE_CHECK_KIND(kRuntime, r >= 0, "combinations: Expect a non-negative number, but got {}", r);
  if (r == 0) return ops::zeros({0}, x.dtype());
  const int64_t n = x.shape()[0];
  Ints chosen(static_cast<size_t>(r), 0), rows;
  if (!with_replacement) std::iota(chosen.begin(), chosen.end(), int64_t{0});
  for (bool more = with_replacement ? n > 0 : n >= r; more;) {
    rows.insert(rows.end(), chosen.begin(), chosen.end());
    int64_t i = r - 1;  // the last one that can go on
    while (i >= 0 && chosen[i] == (with_replacement ? n - 1 : n - r + i)) --i;
    more = i >= 0;
    if (more) ++chosen[i];
    for (int64_t k = i + 1; more && k < r; ++k) chosen[k] = with_replacement ? chosen[i] : chosen[k - 1] + 1;
  }
  const int64_t count = static_cast<int64_t>(rows.size()) / r;
  return ops::reshape(ops::index_select(x, indices_of(rows), 0), {count, r});
}

// Splits by a number of parts, or by the indices at which they begin.
std::vector<Value> tensor_split_by(const Value& x, const Value& by, int64_t dim) {
  SLUICE_CHECK_KIND(
      kRuntime, by.dtype() == DType::kInt64 && by.rank() <= 1,
      "tensor_split: tensor_indices_or_sections is {}; must be an int64 tensor of no dims (sections) or one "
      "(indices)",
      by.type().str());
  SLUICE_CHECK_KIND(kUnsupported, !by.impl()->traced(),
                    "tensor_split: in a graph the parts would be as long as {} says; give ints", by.type().str());
  const Ints numbers = host_values<int64_t>(by, DType::kInt64);
  return by.rank() == 0 ? ops::tensor_split(x, numbers[0], dim) : ops::tensor_split(x, numbers, dim);
}

}  // namespace

void add_data_dependent_forms(std::vector<Form>& forms) {
  forms.push_back(
      {.doc = "Parts along a dim: about equal ones, or cut at indices: views. torch.tensor_split.",
       // A tensor first: one of one element passes for an int as well.
       .overloads = {overload("tensor_split(Tensor input, Tensor tensor_indices_or_sections, int dim=0) -> Tensor[]",
                              &tensor_split_by),
                     overload("tensor_split(Tensor input, int sections, int dim=0) -> Tensor[]",
                              [](const Value& x, int64_t sections, int64_t dim) {
                                return ops::tensor_split(x, sections, dim);
                              }),
                     overload("tensor_split(Tensor input, int[] indices, int dim=0) -> Tensor[]",
                              [](const Value& x, const Ints& indices, int64_t dim) {
                                return ops::tensor_split(x, indices, dim);
                              })},
       .sharing = Sharing::kView});
  forms.push_back(
      {.doc = "input where condition, else other; of the condition alone, the indices where it holds. torch.where.",
       .overloads = {overload("where(Tensor condition, Operand input, Operand other) -> Tensor", &where),
                     overload("where(Tensor condition) -> Tensor[]", &nonzero_columns)},
       .method = false,
       .out = true});
  const auto add = [&](const char* doc, std::vector<Overload> overloads) {
    forms.push_back({.doc = doc, .overloads = std::move(overloads)});
  };
  add("Indices of the elements that are not zero, a row each or, as_tuple, a tensor per dim. torch.nonzero.",
      {overload("nonzero(Tensor input, *, bool as_tuple=False) -> Tensor", &nonzero)});
  forms.back().out = true;
  add("Indices of the elements that are not zero, a row each. torch.argwhere.",
      {overload("argwhere(Tensor input) -> Tensor", &argwhere)});
  add("Indices of the first `size` elements that are not zero, a row each, then rows of fill_value. "
      "torch.nonzero_static.",
      {overload("nonzero_static(Tensor input, *, int size, int fill_value=-1) -> Tensor", &nonzero_static)});
  forms.back().out = true;
  add("The elements where mask holds, both broadcast, as a vector. torch.masked_select.",
      {overload("masked_select(Tensor input, Tensor mask) -> Tensor", &masked_select)});
  forms.back().out = true;
  add("input with values written, or added, where indices of its leading dims meet. torch.index_put.",
      {overload("index_put(Tensor input, Tensor[] indices, Tensor values, bool accumulate=False) -> Tensor",
                &index_put)});
  forms.back().in_place = true;
  add("The distinct elements, or slices of a dim, sorted; with which of them each is, and how often. torch.unique.",
      {overload("unique(Tensor input, bool sorted=True, bool return_inverse=False, bool return_counts=False, int? "
                "dim=None) -> Tensor",
                &unique)});
  add("Runs of equal elements, or slices of a dim, as one; with which run each is of, and how long. "
      "torch.unique_consecutive.",
      {overload("unique_consecutive(Tensor input, bool return_inverse=False, bool return_counts=False, int? dim=None) "
                "-> Tensor",
                &unique_consecutive)});
  add("How often each integer from 0 on occurs, or the sum of its weights. torch.bincount.",
      {overload("bincount(Tensor input, Tensor? weights=None, int minlength=0) -> Tensor", &bincount)});
  const char* const repeated =
      "Entries of a dim (none: of the flattened tensor) repeated, each so often. torch.repeat_interleave.";
  const std::vector<Overload> of_input = {
      overload("repeat_interleave(Tensor input, int repeats, int? dim=None, *, int? output_size=None) -> Tensor",
               &repeat_evenly),
      overload("repeat_interleave(Tensor input, Tensor repeats, int? dim=None, *, int? output_size=None) -> Tensor",
               &repeat_each)};
  add(repeated, of_input);
  forms.back().function = false;
  add(repeated, of_input);
  forms.back().overloads.push_back(
      overload("repeat_interleave(Tensor repeats, *, int? output_size=None) -> Tensor", &repeated_indices));
  forms.back().method = false;
  add("All ways to take r elements of a vector, in order, as rows. torch.combinations.",
      {overload("combinations(Tensor input, int r=2, bool with_replacement=False) -> Tensor", &combinations)});
  forms.back().method = false;
}

}  // namespace sluice
