// Torch's spelling of reductions and of functions along one dim.
#include "graph/ops/comparison.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/forms.h"
#include "graph/ops/indexing.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"
#include "graph/ops/softmax.h"
#include "graph/tape.h"

namespace sluice::ops {
namespace {

using OptionalDType = std::optional<DType>;
using Reduce = Value (*)(const Value&, const Dims&, bool);

Value cast_if(const Value& x, const OptionalDType& dtype) { return dtype ? cast(x, *dtype) : x; }

// A reduction of the input, cast first where a dtype is given.
Form typed_reduction(const char* name, const char* doc, Reduce reduce) {
  const std::string signature =
      std::string(name) + "(Tensor input, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor";
  return {.doc = doc,
          .overloads = {overload(signature,
                                 [reduce](const Value& x, const Dims& dim, bool keepdim, const OptionalDType& dtype) {
                                   return cast_if(reduce(cast_if(x, dtype), dim, keepdim), dtype);
                                 })},
          .out = true};
}

Form reduction(const char* name, const char* doc, Reduce reduce) {
  const std::string signature = std::string(name) + "(Tensor input, int[1]? dim=None, bool keepdim=False) -> Tensor";
  return {.doc = doc, .overloads = {overload(signature, reduce)}, .out = true};
}

// amax and amin: no dims are an empty list in torch.
Form extreme_value(const char* name, const char* doc, Reduce reduce) {
  const std::string signature = std::string(name) + "(Tensor input, int[1]? dim=[], bool keepdim=False) -> Tensor";
  return {.doc = doc,
          .overloads = {overload(
              signature, [reduce](const Value& x, const Dims& dim, bool keepdim) { return reduce(x, dim, keepdim); })},
          .out = true};
}

using Index = Value (*)(const Value&, std::optional<int64_t>, bool);

Form index_reduction(const char* name, const char* doc, Index index) {
  const std::string signature = std::string(name) + "(Tensor input, int? dim=None, bool keepdim=False) -> Tensor";
  return {.doc = doc, .overloads = {overload(signature, index)}, .out = true};
}

// As torch: elements that share the extremum of all share its gradient, and where it is NaN, those that are NaN; amax
// and amin, which this is otherwise, give NaN to all.
Value extremum_of_all(const char* name, Reduce reduce, const Value& x) {
  Value y;
  {
    const GradMode no_grad(false);
    y = reduce(x, std::nullopt, false);
  }
  const auto backward = [name, reduce, saved = SavedValue(x), edge = gradient_edge(x)](std::span<const Value> grads) {
    const Value input = saved.get(name, edge), extremum = reduce(input, std::nullopt, false);
    const Value mask = cast(logical_or(eq(input, extremum), isnan(input)), input.dtype());
    return std::vector<Value>{mul(div(mask, sum(mask, std::nullopt, false)), grads[0])};
  };
  record_function(name, {&x, 1}, {&y, 1}, backward);
  return y;
}

// max and min: of everything, of two tensors, or along a dim with the index.
Form extremum(const char* title, const char* doc, Reduce all, Value (*of_two)(const Operand&, const Operand&),
              Index index) {
  const std::string name = title;
  const auto along = [index](const Value& x, int64_t dim, bool keepdim) -> std::pair<Value, Value> {
    const Value at = index(x.dtype() == DType::kBool ? cast(x, DType::kUInt8) : x, dim, true),
                values = gather(x, at, dim);
    if (keepdim || x.rank() == 0) return {values, at};
    return {squeeze(values, Ints{dim}), squeeze(at, Ints{dim})};
  };
  return {
      .doc = doc,
      .overloads = {overload(name + "(Tensor input) -> Tensor",
                             [title, all](const Value& x) { return extremum_of_all(title, all, x); }),
                    overload(name + "(Tensor input, Tensor other) -> Tensor", of_two),
                    overload(name + "(Tensor input, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
                             along)},
      .out = true};
}

using Spread = Value (*)(const Value&, const Dims&, double, bool);

// var and std: torch's three ways to say what is subtracted from the number of elements.
Form spread(const std::string& name, const char* doc, Spread f) {
  return {
      .doc = doc,
      .overloads = {overload(name + "(Tensor input, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) "
                                    "-> Tensor",
                             [f](const Value& x, const Dims& dim, const std::optional<double>& correction,
                                 bool keepdim) { return f(x, dim, correction.value_or(1), keepdim); }),
                    overload(name + "(Tensor input, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor",
                             [f](const Value& x, const Dims& dim, bool unbiased, bool keepdim) {
                               return f(x, dim, unbiased, keepdim);
                             }),
                    overload(name + "(Tensor input, bool unbiased=True) -> Tensor",
                             [f](const Value& x, bool unbiased) { return f(x, std::nullopt, unbiased, false); })},
      .out = true};
}

Value cumsum_typed(const Value& x, int64_t dim, const OptionalDType& dtype) {
  return cast_if(cumsum(cast_if(x, dtype), dim), dtype);
}
Value softmax_typed(const Value& x, int64_t dim, const OptionalDType& dtype) { return softmax(cast_if(x, dtype), dim); }
Value log_softmax_typed(const Value& x, int64_t dim, const OptionalDType& dtype) {
  return log_softmax(cast_if(x, dtype), dim);
}

Value logsumexp_of(const Value& x, const Ints& dim, bool keepdim) { return logsumexp(x, dim, keepdim); }

// F.softmax without a dim takes the one that torch once took.
int64_t implicit_dim(const Value& x) { return x.rank() == 0 || x.rank() == 1 || x.rank() == 3 ? 0 : 1; }

void add_along_dims(std::vector<Form>& forms) {
  forms.push_back(
      {.doc = "log(sum(exp(input))) over the axes `dim`, without overflow. torch.logsumexp.",
       .overloads = {overload("logsumexp(Tensor input, int[1] dim, bool keepdim=False) -> Tensor", &logsumexp_of)},
       .out = true});
  forms.push_back(
      {.doc = "Running sum along `dim`; integers and bool give int64. torch.cumsum.",
       .overloads = {overload("cumsum(Tensor input, int dim, *, ScalarType? dtype=None) -> Tensor", &cumsum_typed)},
       .in_place = true,
       .out = true});
  forms.push_back(
      {.doc = "exp(input) normalised to sum 1 along `dim`. torch.softmax.",
       .overloads = {overload("softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor", &softmax_typed)},
       .out = true});
  forms.push_back({.doc = "The logarithm of softmax. torch.log_softmax.",
                   .overloads = {overload("log_softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor",
                                          &log_softmax_typed)},
                   .out = true});
  for (const auto& [name, doc, f] :
       {std::tuple("softmax", "exp(input) normalised to sum 1 along `dim`. F.softmax.", &softmax),
        std::tuple("softmin", "softmax(-input), negated in the input's dtype. F.softmin.", &softmax),
        std::tuple("log_softmax", "The logarithm of softmax. F.log_softmax.", &log_softmax)}) {
    const bool negated = std::string_view(name) == "softmin";
    const auto along = [f = f, negated](const Value& x, const std::optional<int64_t>& dim, int64_t,
                                        const OptionalDType& dtype) {
      return f(cast_if(negated ? neg(x) : x, dtype), dim.value_or(implicit_dim(x)));
    };
    forms.push_back({.doc = doc,
                     .overloads = {overload(std::string("nn.functional.") + name +
                                                "(Tensor input, int? dim=None, int _stacklevel=3, ScalarType? "
                                                "dtype=None) -> Tensor",
                                            along)}});
  }
}

}  // namespace

std::vector<Form> reduction_forms() {
  std::vector<Form> forms = {
      typed_reduction("sum", "Sum over the axes `dim` (none: all). Integers and bool give int64. torch.sum.", &sum),
      typed_reduction("mean", "Mean over the axes `dim` (none: all). Floating. torch.mean.", &mean),
      typed_reduction("prod", "Product over the axes `dim` (none: all). Integers and bool give int64. torch.prod.",
                      &prod),
      extreme_value("amax", "Maximum over the axes `dim` (none: all). NaN if any is. torch.amax.", &amax),
      extreme_value("amin", "Minimum over the axes `dim` (none: all). NaN if any is. torch.amin.", &amin),
      reduction("any", "Some element is non-zero, over the axes `dim` (none: all), bool. torch.any.", &any),
      reduction("all", "Every element is non-zero, over the axes `dim` (none: all), bool. torch.all.", &all),
      index_reduction("argmax",
                      "int64 index of the first maximum along `dim` (none: of the flattened tensor). torch.argmax.",
                      &argmax),
      index_reduction("argmin",
                      "int64 index of the first minimum along `dim` (none: of the flattened tensor). torch.argmin.",
                      &argmin),
      extremum("max", "Maximum of all elements, of two tensors, or along `dim` with its index. torch.max.", &amax,
               &maximum, &argmax),
      extremum("min", "Minimum of all elements, of two tensors, or along `dim` with its index. torch.min.", &amin,
               &minimum, &argmin),
      spread("var", "Variance over the axes `dim` (none: all), divided by n - correction. torch.var.", &var),
      spread("std", "Standard deviation over the axes `dim` (none: all). torch.std.", &std),
  };
  add_along_dims(forms);
  return forms;
}

}  // namespace sluice::ops
