// Torch's spelling of statistics: sums without NaN, spreads with their means, covariances, histograms, differences.
#include <cmath>

#include "graph/ops/activation.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/complex.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/forms.h"
#include "graph/ops/indexing.h"
#include "graph/ops/matmul.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"
#include "graph/ops/strided_view.h"

namespace sluice::ops {
namespace {

using Pair = std::pair<Value, Value>;
using OptionalDType = std::optional<DType>;

Value cast_if(const Value& x, const OptionalDType& dtype) { return dtype ? cast(x, *dtype) : x; }

Value without_nan(const Value& x) { return is_floating(x.dtype()) ? where(isnan(x), 0.0, x) : x; }

Value nansum(const Value& x, const Dims& dim, bool keepdim, const OptionalDType& dtype) {
  return cast_if(sum(without_nan(cast_if(x, dtype)), dim, keepdim), dtype);
}

Value nanmean(const Value& input, const Dims& dim, bool keepdim, const OptionalDType& dtype) {
  const Value x = cast_if(input, dtype);
  SLUICE_CHECK_KIND(kRuntime, is_differentiable(x.dtype()),
                    "nanmean(): expected input to have floating point dtype but got {}", dtype_name(x.dtype()));
  reduced_axes(dim ? Attr(*dim) : Attr(), x.rank(), "dim");  // as torch, which looks at them before complex numbers
  SLUICE_CHECK_KIND(kRuntime, is_floating(x.dtype()), "nanmean(): does not support complex inputs: got {}",
                    dtype_name(x.dtype()));
  return div(sum(without_nan(x), dim, keepdim), sum(cast(logical_not(isnan(x)), x.dtype()), dim, keepdim));
}

Value count_nonzero(const Value& x, const Ints& dim) { return sum(ne(x, 0), dim.empty() ? Dims() : Dims(dim)); }
Value count_nonzero_along(const Value& x, const std::optional<int64_t>& dim) {
  return sum(ne(x, 0), dim ? Dims(Ints{*dim}) : Dims());
}

using Spread = Value (*)(const Value&, const Dims&, double, bool);

// The mean as torch's running one: what comes after an infinity makes it NaN, so that only the last element may be one.
Value running_mean(const Value& x, const Dims& dim, bool keepdim) {
  Value y = mean(x, dim, keepdim);
  for (const int axis : reduced_axes(dim ? Attr(*dim) : Attr(), x.rank(), "dim")) {
    const int64_t before = x.shape()[axis] - 1;
    if (before > 0) y = where(isinf(mean(narrow(x, axis, 0, before), dim, keepdim)), std::nan(""), y);
  }
  return y;
}

// var_mean and std_mean: torch's three ways to say what is subtracted from the number of elements.
Form with_mean(const std::string& name, const char* doc, Spread f) {
  const auto both = [f](const Value& x, const Dims& dim, double correction, bool keepdim) {
    return Pair{f(x, dim, correction, keepdim), running_mean(x, dim, keepdim)};
  };
  return {
      .doc = doc,
      .overloads =
          {overload(name + "(Tensor input, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> "
                           "(Tensor, Tensor)",
                    [both](const Value& x, const Dims& dim, const std::optional<double>& correction, bool keepdim) {
                      return both(x, dim, correction.value_or(1), keepdim);
                    }),
           overload(name + "(Tensor input, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)",
                    [both](const Value& x, const Dims& dim, bool unbiased, bool keepdim) {
                      return both(x, dim, unbiased, keepdim);
                    }),
           overload(name + "(Tensor input, bool unbiased=True) -> (Tensor, Tensor)",
                    [both](const Value& x, bool unbiased) { return both(x, std::nullopt, unbiased, false); })},
      .method = false};
}

Value dist(const Value& a, const Value& b, double p) { return norm(to_floating(sub(a, b)), p); }

// --- Covariances: rows are variables, columns observations ---

Value cov(const Value& input, int64_t correction, const Value& fweights, const Value& aweights) {
  SLUICE_CHECK_KIND(kRuntime, input.rank() <= 2,
                    "cov(): expected input to have two or fewer dimensions but got an input with {} dimensions",
                    input.rank());
  SLUICE_CHECK_KIND(kRuntime, input.dtype() != DType::kBool, "cov(): bool dtype is not supported for input");
  const Value x = to_floating(input.rank() == 2 ? input : reshape(input, {1, numel(input.shape())}));
  const int64_t observations = x.shape()[1];
  const auto check = [&](const char* name, const Value& w, bool whole) {
    SLUICE_CHECK_KIND(kRuntime, w.rank() <= 1, "cov(): expected {} to have one or fewer dimensions but got {}", name,
                      w.rank());
    SLUICE_CHECK_KIND(kRuntime, is_floating(w.dtype()) != whole && w.dtype() != DType::kBool,
                      "cov(): expected {} to have {} dtype but got {}", name, whole ? "integral" : "floating point",
                      dtype_name(w.dtype()));
    SLUICE_CHECK_KIND(kRuntime, numel(w.shape()) == observations,
                      "cov(): expected {} to have the same numel as there are observations in the input but got {} != "
                      "{}",
                      name, numel(w.shape()), observations);
  };
  if (fweights.defined()) check("fweights", fweights, true);
  if (aweights.defined()) check("aweights", aweights, false);
  Value weights;
  const DType own = to_real(x.dtype()), real = aweights.defined() ? promote(own, aweights.dtype()) : own;
  if (fweights.defined()) weights = cast(fweights, real);
  if (aweights.defined()) weights = weights.defined() ? mul(weights, aweights) : cast(aweights, real);
  const Value total = weights.defined() ? sum(weights) : full({}, static_cast<double>(observations), real);
  const Value average = weights.defined() ? div(sum(mul(x, weights), Ints{1}, true), total) : mean(x, Ints{1}, true);
  Value degrees = sub(total, static_cast<double>(correction));
  if (correction != 0 && aweights.defined())
    degrees = sub(total, div(mul(sum(mul(weights, cast(aweights, real))), static_cast<double>(correction)), total));
  const Value centred = sub(x, average);
  const Value weighted = weights.defined() ? mul(centred, weights) : centred;
  const Value products = div(matmul(weighted, conjugate(transpose(centred, 0, 1))), clamp(degrees, 0, std::nullopt));
  return input.rank() == 2 && x.shape()[0] != 1 ? products : squeeze(products);
}

Value corrcoef(const Value& x) {
  SLUICE_CHECK_KIND(kRuntime, x.rank() <= 2,
                    "corrcoef(): expected input to have two or fewer dimensions but got an input with {} dimensions",
                    x.rank());
  const Value c = cov(x, 1, {}, {});
  if (c.rank() == 0) return div(c, c);
  const Value spread = sqrt(real_part(diagonal(c))), y = div(div(c, unsqueeze(spread, 1)), spread);
  if (!is_complex(y.dtype())) return clamp(y, -1, 1);
  return complex(clamp(real_part(y), -1, 1), clamp(imaginary_part(y), -1, 1));
}

// --- Histograms ---

// The sums of the weights whose bin is at that index; those below 0 count nowhere.
Value counted(const Value& bin, const Value& weight, int64_t bins, DType dtype) {
  const Value there = ge(bin, int64_t{0});
  return index_add(zeros({bins}, dtype), where(there, bin, int64_t{0}), where(there, weight, zeros({}, dtype)), 0);
}

Value histc(const Value& input, int64_t bins, const Operand& min, const Operand& max) {
  SLUICE_CHECK_KIND(kRuntime, bins > 0, "histc(): bins must be > 0: got {}", bins);
  SLUICE_CHECK_KIND(kRuntime, std::isfinite(min.number()) && std::isfinite(max.number()),
                    "histc: range of [{}, {}] is not finite", min.number(), max.number());
  SLUICE_CHECK_KIND(kRuntime, min.number() <= max.number(), "histc(): max must be larger than min: got {} and {}",
                    max.number(), min.number());
  SLUICE_CHECK_KIND(kUnsupported, is_floating(input.dtype()), "histc: not implemented for {}; cast it to floats",
                    dtype_name(input.dtype()));
  const Value x = flatten(input);
  Value low = min.to(x.dtype()), high = max.to(x.dtype());
  if (min.number() == max.number() && numel(x.shape()) > 0) low = amin(x), high = amax(x);
  const Value flat = eq(low, high);
  low = where(flat, sub(low, 1), low), high = where(flat, add(high, 1), high);
  const Value at = floor(div(mul(sub(x, low), static_cast<double>(bins)), sub(high, low)));
  const Value inside = logical_and(ge(x, low), le(x, high));
  const Value bin = cast(where(inside, clamp(at, 0.0, static_cast<double>(bins - 1)), -1.0), DType::kInt64);
  return counted(bin, ones(x.shape(), x.dtype()), bins, x.dtype());
}

// --- Differences and integrals along a dim ---

Value diff(const Value& input, int64_t n, int64_t dim, const Value& before, const Value& after) {
  SLUICE_CHECK_KIND(kRuntime, input.rank() > 0, "diff: expects input to be at least one-dimensional");
  SLUICE_CHECK_KIND(kRuntime, n >= 0, "diff: order must be non-negative but got {}", n);
  const int axis = normalize_axis(dim, input.rank(), "diff");
  if (n == 0) return copy(input);
  std::vector<Value> parts;
  for (const Value& part : {before, input, after})
    if (part.defined()) {
      SLUICE_CHECK_KIND(kRuntime, part.rank() == input.rank(),
                        "diff: expects prepend or append to be the same dimension as input: got {} and {} dims",
                        part.rank(), input.rank());
      parts.push_back(part);
    }
  Value x = parts.size() > 1 ? concat(parts, axis) : copy(input);
  for (int64_t i = 0; i < n && x.shape()[axis] > 0; ++i) {
    const int64_t size = x.shape()[axis];
    const Value upper = narrow(x, axis, 1, size - 1), lower = narrow(x, axis, 0, size - 1);
    x = x.dtype() == DType::kBool ? logical_xor(upper, lower) : sub(upper, lower);
  }
  return x;
}

int axis_of_points(const char* name, const Value& y, int64_t dim) {
  SLUICE_CHECK_KIND(kIndex, y.rank() > 0, "{}: y has rank 0; must have an axis", name);
  SLUICE_CHECK_KIND(kRuntime, y.dtype() != DType::kBool,
                    "{}: received a bool input for `x` or `y`, but bool is not supported", name);
  return normalize_axis(dim, y.rank(), name);
}

// The areas between neighbours: their mean, times how far they are apart.
Value areas(const char* name, const Value& y, int64_t dim, const std::function<Value(const Value&, int)>& widened) {
  const int axis = axis_of_points(name, y, dim);
  const int64_t size = y.shape()[axis];
  if (size == 0) return y;
  return widened(add(narrow(y, axis, 1, size - 1), narrow(y, axis, 0, size - 1)), axis);
}

Value halved_areas(const char* name, const Value& y, double dx, int64_t dim) {
  return areas(name, y, dim, [&](const Value& sums, int) { return mul(sums, dx / 2); });
}

Value halved_areas(const char* name, const Value& y, const Value& x, int64_t dim) {
  return areas(name, y, dim, [&](const Value& sums, int axis) {
    Value points = x;
    if (x.rank() == 1) {  // along the dim
      SLUICE_CHECK_KIND(kRuntime, x.shape()[0] == y.shape()[axis],
                        "{}: There must be one `x` value for each sample point: got {} for {}", name, x.shape()[0],
                        y.shape()[axis]);
      Ints along(y.rank(), 1);
      along[axis] = x.shape()[0];
      points = reshape(x, along);
    } else if (x.rank() == 0) {
      points = reshape(x, Ints(y.rank(), 1));
    }
    // The dim is counted from the end, from the front where x has more of them.
    return mul(div(sums, 2.0), diff(points, 1, x.rank() > y.rank() ? axis : axis - y.rank(), {}, {}));
  });
}

Value total_of(const Value& x, int64_t dim) {
  return sum(is_floating(x.dtype()) || is_complex(x.dtype()) ? x : cast(x, default_dtype()), Ints{dim});
}

// As torch: the sum without half of both ends, so that infinite ends give NaN.
Value evenly_spaced(const char* name, const Value& y, double dx, int64_t dim) {
  const int axis = axis_of_points(name, y, dim);
  if (y.shape()[axis] == 0) return total_of(y, axis);
  const Value ends = add(select(y, axis, 0), select(y, axis, -1));
  return mul(sub(sum(y, Ints{axis}), mul(ends, 0.5)), dx);
}

std::vector<Overload> trapezoids(const std::string& name, bool from_start) {
  const auto spaced = [=](const Value& y, const Operand& dx, int64_t dim) {
    return from_start ? cumsum(halved_areas("trapezoid", y, dx.number(), dim), dim)
                      : evenly_spaced("trapezoid", y, dx.number(), dim);
  };
  const auto at = [=](const Value& y, const Value& x, int64_t dim) {
    return (from_start ? cumsum : total_of)(halved_areas("trapezoid", y, x, dim), axis_of_points("trapezoid", y, dim));
  };
  return {overload(name + "(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor", spaced),
          overload(name + "(Tensor y, Tensor x, *, int dim=-1) -> Tensor", at)};
}

}  // namespace

std::vector<Form> statistics_forms() {
  const auto typed = [](const char* name) {
    return std::string(name) +
           "(Tensor input, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor";
  };
  return {
      {.doc = "Sum of what is not NaN over the axes `dim` (none: all). torch.nansum.",
       .overloads = {overload(typed("nansum"), &nansum)},
       .out = true},
      {.doc = "Mean of what is not NaN over the axes `dim` (none: all). torch.nanmean.",
       .overloads = {overload(typed("nanmean"), &nanmean)},
       .out = true},
      {.doc = "The number of elements that are not zero, over the axes `dim` (none: all). torch.count_nonzero.",
       .overloads = {overload("count_nonzero(Tensor input, int? dim=None) -> Tensor", &count_nonzero_along),
                     overload("count_nonzero(Tensor input, int[] dim) -> Tensor", &count_nonzero)}},
      with_mean("var_mean", "Variance and mean over the axes `dim` (none: all). torch.var_mean.", &var),
      with_mean("std_mean", "Standard deviation and mean over the axes `dim` (none: all). torch.std_mean.", &std),
      {.doc = "p-norm of input - other. torch.dist.",
       .overloads = {overload("dist(Tensor input, Tensor other, Scalar p=2) -> Tensor", &dist)}},
      {.doc = "Covariances of the rows, of whose observations there may be several or weighted ones. torch.cov.",
       .overloads = {overload("cov(Tensor input, *, int correction=1, Tensor? fweights=None, Tensor? aweights=None) -> "
                              "Tensor",
                              &cov)}},
      {.doc = "Correlations of the rows. torch.corrcoef.",
       .overloads = {overload("corrcoef(Tensor input) -> Tensor", &corrcoef)}},
      {.doc = "How many elements lie in each of equal bins from min to max (equal: those of the input). torch.histc.",
       .overloads = {overload("histc(Tensor input, int bins=100, Scalar min=0, Scalar max=0) -> Tensor", &histc)},
       .out = true},
      {.doc = "Differences of neighbours along a dim, n times. torch.diff.",
       .overloads = {overload("diff(Tensor input, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None) -> "
                              "Tensor",
                              &diff)},
       .out = true},
      {.doc = "Integral along a dim by trapezoids, of points dx apart or at x. torch.trapezoid.",
       .overloads = trapezoids("trapezoid", false),
       .method = false},
      {.doc = "Integral along a dim by trapezoids, of points dx apart or at x. torch.trapz.",
       .overloads = {overload(
                         "trapz(Tensor y, *, float dx=1, int dim=-1) -> Tensor",
                         [](const Value& y, double dx, int64_t dim) { return evenly_spaced("trapz", y, dx, dim); }),
                     overload("trapz(Tensor y, Tensor x, *, int dim=-1) -> Tensor",
                              [](const Value& y, const Value& x, int64_t dim) {
                                return total_of(halved_areas("trapz", y, x, dim), axis_of_points("trapz", y, dim));
                              })},
       .method = false},
      {.doc = "Integrals up to each point along a dim by trapezoids. torch.cumulative_trapezoid.",
       .overloads = trapezoids("cumulative_trapezoid", true),
       .method = false},
  };
}

}  // namespace sluice::ops
