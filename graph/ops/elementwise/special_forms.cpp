// torch.special: other names of functions that the top level has, and functions that are there alone.
#include <tuple>

#include "graph/ops/comparison.h"
#include "graph/ops/forms.h"
#include "graph/ops/reduction.h"
#include "graph/ops/softmax.h"
#include "graph/ops/special.h"

namespace sluice::ops {
namespace {

using OptionalDType = std::optional<DType>;
using Unary = Value (*)(const Value&);

const char* doc_of(const char* name) { return builtin_ops().get(name).doc; }

// A function at the top level, with its method, in place and out=, and its names in special.
Form everywhere(Unary f, const std::string& name, std::vector<const char*> aliases) {
  return {.doc = doc_of(name.c_str()),
          .overloads = {overload(name + "(Tensor input) -> Tensor", f)},
          .aliases = std::move(aliases),
          .in_place = true,
          .out = true};
}
// A function of special alone.
Form there(Unary f, const std::string& name, const std::string& operand = "input") {
  return {.doc = doc_of(name.c_str()),
          .overloads = {overload("special." + name + "(Tensor " + operand + ") -> Tensor", f)},
          .out = true};
}

Value of_dtype(const Value& x, const OptionalDType& dtype) { return dtype ? cast(x, *dtype) : x; }
Value softmax_of(const Value& x, int64_t dim, const OptionalDType& dtype) { return softmax(of_dtype(x, dtype), dim); }
Value log_softmax_of(const Value& x, int64_t dim, const OptionalDType& dtype) {
  return log_softmax(of_dtype(x, dtype), dim);
}
Value logsumexp_of(const Value& x, const Ints& dim, bool keepdim) { return logsumexp(x, dim, keepdim); }

Form with_out(Overload made, const char* doc) { return {.doc = doc, .overloads = {std::move(made)}, .out = true}; }

void add_gamma(std::vector<Form>& forms) {
  forms.push_back(everywhere(&lgamma, "lgamma", {"special.gammaln"}));
  forms.push_back(everywhere(&digamma, "digamma", {"special.digamma", "special.psi"}));
  for (const auto& [name, alias, f] :
       {std::tuple("igamma", "special.gammainc", &igamma), std::tuple("igammac", "special.gammaincc", &igammac)})
    forms.push_back({.doc = doc_of(name),
                     .overloads = {overload(std::string(name) + "(Tensor input, Tensor other) -> Tensor", f)},
                     .aliases = {alias},
                     .in_place = true,
                     .out = true});
  forms.push_back({.doc = "Logarithm of the multivariate gamma function of dimension p. torch.mvlgamma.",
                   .overloads = {overload("mvlgamma(Tensor input, int p) -> Tensor", &multigammaln)},
                   .aliases = {"special.multigammaln"},
                   .in_place = true,
                   .out = true});
  forms.push_back({.doc = doc_of("zeta"),
                   .overloads = {overload("special.zeta(Tensor input, Operand other) -> Tensor", &zeta),
                                 overload("special.zeta(Scalar input, Tensor other) -> Tensor", &zeta)},
                   .out = true});
}

void add_aliases(std::vector<Form>& forms) {
  forms.push_back(everywhere(&erf, "erf", {"special.erf"}));
  forms.push_back(everywhere(&erfc, "erfc", {"special.erfc"}));
  forms.push_back(everywhere(&erfinv, "erfinv", {"special.erfinv"}));
  forms.push_back(everywhere(&exp2, "exp2", {"special.exp2"}));
  forms.push_back(everywhere(&expm1, "expm1", {"special.expm1"}));
  forms.push_back(everywhere(&log1p, "log1p", {"special.log1p"}));
  forms.push_back(everywhere(&sinc, "sinc", {"special.sinc"}));
  forms.push_back(everywhere(&i0, "i0", {"special.i0", "special.modified_bessel_i0"}));
  forms.push_back({.doc = doc_of("i1"),
                   .overloads = {overload("special.i1(Tensor input) -> Tensor", &i1)},
                   .aliases = {"special.modified_bessel_i1"},
                   .out = true});
  forms.push_back({.doc = "exp(input) normalised to sum 1 along `dim`. torch.special.softmax.",
                   .overloads = {overload("special.softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor",
                                          &softmax_of)}});
  forms.push_back({.doc = "The logarithm of softmax. torch.special.log_softmax.",
                   .overloads = {overload("special.log_softmax(Tensor input, int dim, *, ScalarType? dtype=None) -> "
                                          "Tensor",
                                          &log_softmax_of)}});
  forms.push_back(
      with_out(overload("special.logsumexp(Tensor input, int[1] dim, bool keepdim=False) -> Tensor", &logsumexp_of),
               "log(sum(exp(input))) over the axes `dim`, without overflow. torch.special.logsumexp."));
  forms.push_back({.doc = doc_of("xlog1py"),
                   .overloads = {overload("special.xlog1py(Tensor input, Operand other) -> Tensor", &xlog1py),
                                 overload("special.xlog1py(Scalar input, Tensor other) -> Tensor", &xlog1py)},
                   .out = true});
}

}  // namespace

std::vector<Form> special_forms() {
  std::vector<Form> forms;
  add_gamma(forms);
  add_aliases(forms);
#define THERE(NAME) forms.push_back(there(&NAME, #NAME))
  THERE(erfcx);
  THERE(ndtr);
  THERE(ndtri);
  THERE(log_ndtr);
  THERE(entr);
  THERE(i0e);
  THERE(i1e);
  THERE(modified_bessel_k0);
  THERE(modified_bessel_k1);
  THERE(bessel_j0);
  THERE(bessel_j1);
  THERE(bessel_y0);
  THERE(bessel_y1);
#undef THERE
  forms.push_back(there(&scaled_modified_bessel_k0, "scaled_modified_bessel_k0", "x"));
  forms.push_back(there(&scaled_modified_bessel_k1, "scaled_modified_bessel_k1", "x"));
  forms.push_back(there(&spherical_bessel_j0, "spherical_bessel_j0", "x"));
  return forms;
}

}  // namespace sluice::ops
