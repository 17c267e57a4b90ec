// torch.nn.functional's spelling of normalisation.
#include "graph/ops/activation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/forms.h"
#include "graph/ops/movement.h"
#include "graph/ops/normalization.h"
#include "graph/ops/reduction.h"

namespace sluice::ops {
namespace {

Value rms_norm_of(const Value& x, const Ints& shape, const Value& weight, const std::optional<double>& eps) {
  // As torch: the machine epsilon of the dtype that is computed in.
  const double epsilon = to_real(x.dtype()) == DType::kFloat64 ? 0x1p-52 : 0x1p-23;
  return rms_norm(x, shape, weight, eps.value_or(epsilon));
}

Value normalize(const Value& x, const std::optional<double>& p, const Dims& dim, double eps) {
  return div(x, expand(clamp(norm(x, p.value_or(2), dim, true), Operand(eps), std::nullopt), x.shape()));
}

Form functional(const char* doc, Overload o) { return {.doc = doc, .overloads = {std::move(o)}}; }

void add_normalisation(std::vector<Form>& forms) {
  const auto add = [&](const char* doc, Overload o) { forms.push_back(functional(doc, std::move(o))); };
  add("Normalised over the last dims, of shape normalized_shape. F.layer_norm.",
      overload("nn.functional.layer_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, "
               "float eps=1e-05) -> Tensor",
               &layer_norm));
  add("Divided by the root of the mean square over the last dims. F.rms_norm.",
      overload("nn.functional.rms_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, float? eps=None) -> "
               "Tensor",
               &rms_norm_of));
  add("Normalised over groups of channels of (N, C, ...). F.group_norm.",
      overload("nn.functional.group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float "
               "eps=1e-05) -> Tensor",
               &group_norm));
  add("Divided by the p-norm along dim, at least eps. F.normalize.",
      overload("nn.functional.normalize(Tensor input, float? p=2.0, int[1]? dim=1, float eps=1e-12) -> Tensor",
               &normalize));
}

}  // namespace

std::vector<Form> network_forms() {
  std::vector<Form> forms;
  add_normalisation(forms);
  return forms;
}

}  // namespace sluice::ops
