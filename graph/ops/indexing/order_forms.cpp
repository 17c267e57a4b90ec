// Torch's spelling of what depends on the order of elements: sorting, medians and quantiles, search, running extrema.
#include <cmath>

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

namespace sluice::ops {
namespace {

using Pair = std::pair<Value, Value>;
using OptionalInt = std::optional<int64_t>;
using OptionalDType = std::optional<DType>;

int64_t length_of(const char* name, const Value& x, int64_t dim) {
  const int axis = normalize_axis(dim, x.rank(), name);
  return x.rank() == 0 ? 1 : x.shape()[axis];
}

// The elements at `at`, whose dim has one entry each, with where they are.
Pair picked(const Value& x, const Value& at, int64_t dim, bool keepdim) {
  const Value values = gather(x, at, dim);
  if (keepdim || x.rank() == 0) return {values, at};
  return {squeeze(values, Ints{dim}), squeeze(at, Ints{dim})};
}

Pair sort(const Value& x, int64_t dim, bool descending) {
  length_of("sort", x, dim);
  const Value order = argsort(x, dim, descending);
  return {gather(x, order, dim), order};
}
Pair sort_stably(const Value& x, const std::optional<bool>&, int64_t dim, bool descending) {
  return sort(x, dim, descending);
}
Value argsort_of(const Value& x, int64_t dim, bool descending) {
  length_of("argsort", x, dim);
  return argsort(x, dim, descending);
}
Value argsort_stably(const Value& x, bool, int64_t dim, bool descending) { return argsort_of(x, dim, descending); }
Value msort(const Value& x) { return sort(x, 0, false).first; }

Pair topk(const Value& x, int64_t k, int64_t dim, bool largest, bool) {
  const int64_t size = length_of("topk", x, dim);
  SLUICE_CHECK_KIND(kRuntime, k >= 0 && k <= size,
                    "topk: selected index k out of range: k is {}; must be between 0 and {}", k, size);
  const Value chosen = x.rank() == 0 ? argsort(x, dim, largest) : order_part(x, dim, largest, 0, k);
  return {gather(x, chosen, dim), chosen};
}

// The index of the element that is number `at` of the sorted line.
Value nth(const Value& x, int64_t dim, int64_t at) {
  return x.rank() == 0 ? argsort(x, dim, false) : order_part(x, dim, false, at, 1);
}

Pair kthvalue(const Value& x, int64_t k, int64_t dim, bool keepdim) {
  const int64_t size = length_of("kthvalue", x, dim);
  SLUICE_CHECK_KIND(kIndex, size > 0, "kthvalue: Expected reduction dim {} to have non-zero size", dim);
  SLUICE_CHECK_KIND(kRuntime, k >= 1 && k <= size,
                    "kthvalue: selected number k out of range for dimension {}: k is {}; must be between 1 and {}", dim,
                    k, size);
  return picked(x, nth(x, dim, k - 1), dim, keepdim);
}

// The lower median. A line with NaN gives the first NaN, or the median of the others.
Pair median_along(const char* name, const Value& x, int64_t dim, bool keepdim, bool skips_nan) {
  const int64_t size = length_of(name, x, dim);
  SLUICE_CHECK_KIND(kIndex, size > 0, "{}: Expected reduction dim {} to have non-zero size", name, dim);
  if (x.rank() == 0 || !is_floating(x.dtype())) return picked(x, nth(x, dim, (size - 1) / 2), dim, keepdim);
  const Value nan = isnan(x);
  if (!skips_nan) {
    const Value first = argmax(cast(nan, DType::kUInt8), dim, true);
    return picked(x, where(gather(nan, first, dim), first, nth(x, dim, (size - 1) / 2)), dim, keepdim);
  }
  const Value middle = floor_divide(sub(sub(size, sum(nan, Ints{dim}, true)), 1), 2);
  return picked(x, gather(argsort(x, dim, false), clamp(middle, 0, std::nullopt), dim), dim, keepdim);
}

Form median_form(const char* title, const char* doc, bool skips_nan) {
  const std::string name = title;
  const auto of_all = [=](const Value& x) {
    if (numel(x.shape()) > 0) return median_along(title, flatten(x), 0, false, skips_nan).first;
    SLUICE_CHECK_KIND(kRuntime, is_floating(x.dtype()), "{}: the input of {} is empty; it has no median", title,
                      dtype_name(x.dtype()));
    return add(sum(flatten(x), Ints{0}), full({}, std::nan(""), x.dtype()));  // of no elements, with their history
  };
  const auto along = [=](const Value& x, int64_t dim, bool keepdim) {
    return median_along(title, x, dim, keepdim, skips_nan);
  };
  return {
      .doc = doc,
      .overloads = {overload(name + "(Tensor input) -> Tensor", of_all),
                    overload(name + "(Tensor input, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
                             along)},
      .out = true};
}

// The most frequent value, the smallest of those: the longest run of the sorted line, which ends where it is.
Pair mode(const Value& x, int64_t dim, bool keepdim) {
  const int64_t size = length_of("mode", x, dim);
  SLUICE_CHECK_KIND(kIndex, size > 0, "mode: Expected reduction dim {} to have non-zero size", dim);
  if (x.rank() == 0) return picked(x, zeros({}, DType::kInt64), dim, keepdim);
  const Value numbers = x.dtype() == DType::kBool ? cast(x, DType::kUInt8) : x;
  const auto [values, order] = sort(numbers, dim, false);
  const Value next = narrow(values, dim, 1, size - 1), same = eq(next, narrow(values, dim, 0, size - 1));
  const Value first = zeros_like(narrow(order, dim, 0, 1));
  const std::vector<Value> continued = {first, cast(same, DType::kInt64)};
  const Value runs = linear_recurrence(concat(continued, dim), ones_like(order), dim);
  return picked(x, gather(order, argmax(runs, dim, true), dim), dim, keepdim);
}

// --- Quantiles ---

Value quantile_of(const char* name, const Value& x, const Value& q, const OptionalInt& dim, bool keepdim,
                  const std::string& interpolation, bool skips_nan) {
  SLUICE_CHECK_KIND(kRuntime, numel(x.shape()) > 0, "{}(): input tensor must be non-empty", name);
  SLUICE_CHECK_KIND(kRuntime, q.rank() <= 1, "{}(): q must be a scalar or 1D tensor: got {} dims", name, q.rank());
  SLUICE_CHECK_KIND(kRuntime, x.dtype() == DType::kFloat32 || x.dtype() == DType::kFloat64,
                    "{}(): input tensor must be either float or double dtype: got {}", name, dtype_name(x.dtype()));
  SLUICE_CHECK_KIND(kRuntime, q.dtype() == x.dtype(),
                    "{}(): q tensor must be same dtype as the input tensor: {} and {}", name, dtype_name(q.dtype()),
                    dtype_name(x.dtype()));
  const int axis = dim ? normalize_axis(*dim, x.rank(), name) : 0;
  const Value lines = !dim || x.rank() == 0 ? flatten(x) : movedim(x, axis, -1);
  const int64_t size = lines.shape().back();
  const Value sorted = gather(lines, argsort(lines, -1), -1);
  // The rank of each quantile among the sorted elements; NaN is last.
  const Value nans = cast(sum(isnan(lines), Ints{-1}, true), x.dtype()), last = full({}, size - 1.0, x.dtype());
  const Value flat_q = q.rank() == 0 ? reshape(q, {1}) : q;
  const Value ranks =
      skips_nan ? clamp(mul(flat_q, sub(last, nans)), 0, std::nullopt) : where(gt(nans, 0), last, mul(flat_q, last));
  const bool below_only = interpolation == "lower", above_only = interpolation == "higher";
  const bool nearest = interpolation == "nearest", middle = interpolation == "midpoint";
  SLUICE_CHECK_KIND(kRuntime, below_only || above_only || nearest || middle || interpolation == "linear",
                    "{}(): interpolation must be one of linear, lower, higher, midpoint or nearest, but got {}", name,
                    interpolation);
  const auto at = [&](const Value& rank) { return gather(sorted, cast(rank, DType::kInt64), -1); };
  Value y = at(above_only ? ceil(ranks) : nearest ? round(ranks) : floor(ranks));
  if (middle) y = lerp(y, at(ceil(ranks)), 0.5);
  if (interpolation == "linear") y = lerp(y, at(ceil(ranks)), sub(ranks, floor(ranks)));
  // (rest..., quantiles) to (quantiles, rest...).
  Ints shape;
  if (q.rank() == 1) shape.push_back(q.shape()[0]);
  for (int i = 0; i < x.rank(); ++i)
    if (dim && i != axis)
      shape.push_back(x.shape()[i]);
    else if (keepdim)
      shape.push_back(1);
  return reshape(movedim(y, -1, 0), shape);
}

Form quantile_form(const char* title, const char* doc, bool skips_nan) {
  const std::string name = title;
  const auto by_tensor = [=](const Value& x, const Value& q, const OptionalInt& dim, bool keepdim,
                             const std::string& interpolation) {
    return quantile_of(title, x, q, dim, keepdim, interpolation, skips_nan);
  };
  const auto by_number = [=](const Value& x, double q, const OptionalInt& dim, bool keepdim,
                             const std::string& interpolation) {
    SLUICE_CHECK_KIND(kRuntime, q >= 0 && q <= 1, "{}(): q must be in the range [0, 1] but got {}", title, q);
    return quantile_of(title, x, full({}, q, x.dtype()), dim, keepdim, interpolation, skips_nan);
  };
  const char* const rest = ", int? dim=None, bool keepdim=False, *, str interpolation=\"linear\") -> Tensor";
  return {.doc = doc,
          .overloads = {overload(name + "(Tensor input, Tensor q" + rest, by_tensor),
                        overload(name + "(Tensor input, float q" + rest, by_number)},
          .out = true};
}

// --- Search ---

// The position that each element of a line of x has once the line is sorted.
Value ranks_of(const Value& x) {
  const Value order = argsort(x, -1);
  const Value places = expand(iota(0, 1, x.shape().back()), x.shape());
  return scatter(zeros(x.shape(), DType::kInt64), order, places, -1);
}

// How many entries of the sorted line are below each value, or `right`: not above it. The rank of the value in the
// order of both, less the values among those before it.
Value entries_before(const Value& sorted, const Value& values, bool right) {
  const int64_t m = values.shape().back(), n = sorted.shape().back();
  const std::vector<Value> both = right ? std::vector{sorted, values} : std::vector{values, sorted};
  return sub(narrow(ranks_of(concat(both, -1)), -1, right ? n : 0, m), ranks_of(values));
}

Value search(const char* name, const Value& sorted, const Operand& given, bool out_int32, bool right) {
  const DType dtype = result_dtype(sorted, given);
  const Value values = given.to(dtype), line = cast(sorted, dtype);
  Value found;
  if (line.rank() == 1) {
    found = reshape(entries_before(line, reshape(values, {-1}), right), values.shape().vec());
  } else {
    bool fits = line.rank() == values.rank() && line.rank() > 0;
    for (int i = 0; fits && i + 1 < line.rank(); ++i) fits = line.shape()[i] == values.shape()[i];
    SLUICE_CHECK_KIND(kRuntime, fits,
                      "{}(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor "
                      "and input value tensor must match, but we got boundaries tensor {} and input value tensor {}",
                      name, line.shape().str(), values.shape().str());
    found = entries_before(line, values, right);
  }
  return out_int32 ? cast(found, DType::kInt32) : found;
}

Value searchsorted(const Value& sequence, const Operand& values, bool out_int32, bool right,
                   const std::optional<std::string>& side, const Value& sorter) {
  SLUICE_CHECK_KIND(kRuntime, !side || *side == "left" || *side == "right",
                    "searchsorted(): side can only be 'left' or 'right' but got {}", *side);
  SLUICE_CHECK_KIND(kRuntime, !side || !right || *side == "right",
                    "searchsorted(): side and right can't be set to opposites, got side of {} while right was True",
                    *side);
  const Value sorted = sorter.defined() ? gather(sequence, sorter, -1) : sequence;
  return search("searchsorted", sorted, values, out_int32, right || (side && *side == "right"));
}

Value bucketize(const Operand& values, const Value& boundaries, bool out_int32, bool right) {
  SLUICE_CHECK_KIND(kRuntime, boundaries.rank() == 1,
                    "bucketize(): boundaries tensor must be 1 dimension, but got dim({})", boundaries.rank());
  return search("bucketize", boundaries, values, out_int32, right);
}

Value isin(const Operand& elements, const Operand& among, bool, bool invert) {
  const DType dtype = result_dtype(elements, among);
  const Value values = elements.to(dtype), tested = reshape(among.to(dtype), {-1});
  const Value sorted = gather(tested, argsort(tested, 0), 0), flat = reshape(values, {-1});
  const Value count = sub(entries_before(sorted, flat, true), entries_before(sorted, flat, false));
  // NaN equals nothing.
  const Value found = logical_and(gt(count, 0), eq(flat, flat));
  return reshape(invert ? logical_not(found) : found, values.shape().vec());
}

// --- Running extrema, and both extrema at once ---

Value cumprod_typed(const Value& x, int64_t dim, const OptionalDType& dtype) {
  return cumprod(dtype ? cast(x, *dtype) : x, dim);
}

Pair aminmax(const Value& x, const OptionalInt& dim, bool keepdim) {
  Dims dims;
  if (dim) dims = Ints{*dim};
  return {amin(x, dims, keepdim), amax(x, dims, keepdim)};
}

void add_search(std::vector<Form>& forms) {
  const char* const rest =
      ", *, bool out_int32=False, bool right=False, str? side=None, Tensor? sorter=None) -> Tensor";
  forms.push_back(
      {.doc = "Where values would go into the sorted last dim, before equal ones or, right, after. torch.searchsorted.",
       .overloads = {overload(std::string("searchsorted(Tensor sorted_sequence, Operand input") + rest, &searchsorted)},
       .method = false,
       .out = true});
  forms.push_back({.doc = "Between which of the sorted boundaries values lie. torch.bucketize.",
                   .overloads = {overload("bucketize(Operand input, Tensor boundaries, *, bool out_int32=False, bool "
                                          "right=False) -> Tensor",
                                          &bucketize)},
                   .method = false,
                   .out = true});
  forms.push_back({.doc = "Whether elements are among test_elements, bool. torch.isin.",
                   .overloads = {overload("isin(Tensor elements, Operand test_elements, *, bool assume_unique=False, "
                                          "bool invert=False) -> Tensor",
                                          &isin),
                                 overload("isin(Scalar element, Tensor test_elements, *, bool assume_unique=False, "
                                          "bool invert=False) -> Tensor",
                                          &isin)},
                   .method = false,
                   .out = true});
}

}  // namespace

std::vector<Form> order_forms() {
  const auto named = [](const char* doc, Overload made) {
    return Form{.doc = doc, .overloads = {std::move(made)}, .out = true};
  };
  std::vector<Form> forms = {
      {.doc = "Sorted along a dim, and where the elements were; stable, NaN is the largest. torch.sort.",
       .overloads =
           {overload("sort(Tensor input, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)", &sort),
            overload("sort(Tensor input, *, bool? stable, int dim=-1, bool descending=False) -> (Tensor values, "
                     "Tensor indices)",
                     &sort_stably)},
       .out = true},
      {.doc = "Where the elements of a sorted dim were; stable. torch.argsort.",
       .overloads = {overload("argsort(Tensor input, int dim=-1, bool descending=False) -> Tensor", &argsort_of),
                     overload("argsort(Tensor input, *, bool stable, int dim=-1, bool descending=False) -> Tensor",
                              &argsort_stably)},
       .out = true},
      named("Sorted along the first dim. torch.msort.", overload("msort(Tensor input) -> Tensor", &msort)),
      named("The k largest (or smallest) along a dim, sorted, and where they were. torch.topk.",
            overload("topk(Tensor input, int k, int dim=-1, bool largest=True, bool sorted=True) -> "
                     "(Tensor values, Tensor indices)",
                     &topk)),
      named("The k-th smallest along a dim, k from 1, and where it is. torch.kthvalue.",
            overload("kthvalue(Tensor input, int k, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
                     &kthvalue)),
      median_form("median", "The lower median of all, or along a dim with its index; NaN if any is. torch.median.",
                  false),
      median_form("nanmedian", "The lower median of what is not NaN. torch.nanmedian.", true),
      named("The most frequent value along a dim, the smallest of several, and where it is. torch.mode.",
            overload("mode(Tensor input, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)", &mode)),
      quantile_form("quantile", "Quantiles q, in [0, 1], of all or along a dim; NaN if any is. torch.quantile.", false),
      quantile_form("nanquantile", "Quantiles of what is not NaN. torch.nanquantile.", true),
      {.doc = "Running product along `dim`; integers and bool give int64. torch.cumprod.",
       .overloads = {overload("cumprod(Tensor input, int dim, *, ScalarType? dtype=None) -> Tensor", &cumprod_typed)},
       .in_place = true,
       .out = true},
      named("Running maximum along a dim, and where it is. torch.cummax.",
            overload("cummax(Tensor input, int dim) -> (Tensor values, Tensor indices)", &cummax)),
      named("Running minimum along a dim, and where it is. torch.cummin.",
            overload("cummin(Tensor input, int dim) -> (Tensor values, Tensor indices)", &cummin)),
      named("log(sum(exp(input))) of the elements so far along a dim. torch.logcumsumexp.",
            overload("logcumsumexp(Tensor input, int dim) -> Tensor", &logcumsumexp)),
      named("Minimum and maximum of all, or along a dim. torch.aminmax.",
            overload("aminmax(Tensor input, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)",
                     &aminmax)),
  };
  add_search(forms);
  return forms;
}

}  // namespace sluice::ops
