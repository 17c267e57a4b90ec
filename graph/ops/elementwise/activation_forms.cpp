// torch.nn.functional's spelling of activations.
#include <cmath>

#include "graph/ops/activation.h"
#include "graph/ops/comparison.h"
#include "graph/ops/composed.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/forms.h"
#include "graph/ops/movement.h"
#include "graph/ops/shaping.h"

namespace sluice::ops {
namespace {

void check_real(const Value& x, const char* where) {
  SLUICE_CHECK_KIND(kRuntime, is_floating(x.dtype()),
                    "{}: not implemented for dtype {}; the input must be floating-point", where, dtype_name(x.dtype()));
}

Value softsign(const Value& x) { return div(x, add(abs(x), 1)); }

Value glu(const Value& x, int64_t dim) {
  const int axis = normalize_axis(dim, x.rank(), "glu");
  SLUICE_CHECK_KIND(kRuntime, x.rank() > 0, "glu: does not support scalars: got shape {}; halving size must be even",
                    x.shape().str());
  SLUICE_CHECK_KIND(kRuntime, x.shape()[axis] % 2 == 0,
                    "glu: Halving dimension must be even: dimension {} of {} is not", dim, x.shape().str());
  const int64_t half = x.shape()[axis] / 2;
  return mul(narrow(x, axis, 0, half), sigmoid(narrow(x, axis, half, half)));
}

Value celu(const Value& x, double alpha) {
  SLUICE_CHECK_KIND(kRuntime, alpha != 0, "celu: ZeroDivisionError: alpha cannot be 0 for CELU: got {}", alpha);
  check_real(x, "celu");
  return elu(x, alpha, 1 / alpha);
}

Value selu_of(const Value& x) {
  check_real(x, "selu");
  return selu(x);
}

Value elu_of(const Value& x, double alpha) { return elu(x, alpha); }

Value prelu_of(const Value& x, const Value& weight) {
  check_real(x, "prelu");
  const int64_t count = numel(weight.shape());
  SLUICE_CHECK_KIND(kRuntime, weight.rank() <= 1,
                    "prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {}", weight.rank());
  SLUICE_CHECK_KIND(kRuntime, weight.dtype() == x.dtype(),
                    "prelu: Type promoting not supported. Got {} and {}: weight must have the input's dtype",
                    dtype_name(x.dtype()), dtype_name(weight.dtype()));
  if (count == 1) return prelu(x, reshape(weight, {}));
  SLUICE_CHECK_KIND(kRuntime, x.rank() > 0, "prelu: Not allow zero-dim input tensor: weight has {} entries", count);
  const int64_t channels = x.rank() > 1 ? x.shape()[1] : 1;
  SLUICE_CHECK_KIND(kRuntime, channels == count,
                    "prelu: Mismatch of parameter numbers and input channel size. Found parameter numbers = {} and "
                    "channel size = {}",
                    count, channels);
  Ints shape(x.rank() - 1, 1);
  shape[0] = count;
  return prelu(x, reshape(weight, shape));
}

Value hardshrink_of(const Value& x, double lambd) {
  check_real(x, "hardshrink");
  return hardshrink(x, lambd);
}

Value softshrink_of(const Value& x, double lambd) {
  check_real(x, "softshrink");
  SLUICE_CHECK_KIND(kRuntime, lambd >= 0, "softshrink: lambda must be greater or equal to 0, but found to be {}",
                    lambd);
  return softshrink(x, lambd);
}

Value tanhshrink(const Value& x) { return sub(x, tanh(x)); }

Value threshold(const Value& x, const Operand& threshold, const Operand& value) {
  if (is_floating(x.dtype()) && threshold.is_number() && value.is_number()) {
    value.check_fits(x.dtype(), "threshold");
    return threshold_of_floats(x, threshold.number(), value.number());
  }
  return masked_fill(x, le(x, threshold), value);
}

}  // namespace

std::vector<Form> activation_forms() {
  std::vector<Form> forms;
  const auto add = [&](const char* doc, Overload o, std::vector<const char*> aliases = {}) {
    forms.push_back({.doc = doc, .overloads = {std::move(o)}, .aliases = std::move(aliases)});
  };
  add("max(input, 0). F.relu.", overload("nn.functional.relu(Tensor input, bool inplace=False) -> Tensor", &relu));
  add("min(max(input, 0), 6). F.relu6.",
      overload("nn.functional.relu6(Tensor input, bool inplace=False) -> Tensor", &relu6));
  add("input * sigmoid(input). F.silu.",
      overload("nn.functional.silu(Tensor input, bool inplace=False) -> Tensor", &silu));
  add("input * tanh(softplus(input)). F.mish.",
      overload("nn.functional.mish(Tensor input, bool inplace=False) -> Tensor", &mish));
  add("input where positive, else negative_slope * input. F.leaky_relu.",
      overload("nn.functional.leaky_relu(Tensor input, float negative_slope=0.01, bool inplace=False) -> Tensor",
               &leaky_relu));
  add("input where positive, else alpha * (exp(input) - 1). F.elu.",
      overload("nn.functional.elu(Tensor input, float alpha=1.0, bool inplace=False) -> Tensor", &elu_of));
  add("input within [min_val, max_val]. F.hardtanh.",
      overload(
          "nn.functional.hardtanh(Tensor input, float min_val=-1.0, float max_val=1.0, bool inplace=False) -> Tensor",
          &hardtanh));
  add("min(max(input / 6 + 1 / 2, 0), 1). F.hardsigmoid.",
      overload("nn.functional.hardsigmoid(Tensor input, bool inplace=False) -> Tensor", &hardsigmoid));
  add("input * hardsigmoid(input). F.hardswish.",
      overload("nn.functional.hardswish(Tensor input, bool inplace=False) -> Tensor", &hardswish));
  add("input * Phi(input), exact ('none') or by tanh ('tanh'). F.gelu.",
      overload("nn.functional.gelu(Tensor input, str approximate=\"none\") -> Tensor", &gelu));
  add("log(1 + exp(beta * input)) / beta, and input above the threshold. F.softplus.",
      overload("nn.functional.softplus(Tensor input, float beta=1.0, float threshold=20.0) -> Tensor", &softplus));
  add("log(sigmoid(input)). F.logsigmoid.", overload("nn.functional.logsigmoid(Tensor input) -> Tensor", &logsigmoid));
  add("input / (1 + |input|). F.softsign.", overload("nn.functional.softsign(Tensor input) -> Tensor", &softsign));
  add("The first half of a dim times the sigmoid of the second. F.glu.",
      overload("nn.functional.glu(Tensor input, int dim=-1) -> Tensor", &glu));
  add("input where positive, else alpha * (exp(input / alpha) - 1). F.celu.",
      overload("nn.functional.celu(Tensor input, float alpha=1.0, bool inplace=False) -> Tensor", &celu));
  add("1.0507 * (input where positive, else 1.6733 * (exp(input) - 1)). F.selu.",
      overload("nn.functional.selu(Tensor input, bool inplace=False) -> Tensor", &selu_of));
  forms.push_back({.doc = "input where positive, else weight * input; weight of one entry, or of one per channel. "
                          "F.prelu.",
                   .overloads = {overload("prelu(Tensor input, Tensor weight) -> Tensor", &prelu_of)},
                   .aliases = {"nn.functional.prelu"}});
  forms.push_back({.doc = "0 within [-lambd, lambd], else input. F.hardshrink.",
                   .overloads = {overload("hardshrink(Tensor input, float lambd=0.5) -> Tensor", &hardshrink_of)},
                   .aliases = {"nn.functional.hardshrink"},
                   .out = true});
  add("0 within [-lambd, lambd], else input moved towards 0 by lambd. F.softshrink.",
      overload("nn.functional.softshrink(Tensor input, float lambd=0.5) -> Tensor", &softshrink_of));
  add("input - tanh(input). F.tanhshrink.", overload("nn.functional.tanhshrink(Tensor input) -> Tensor", &tanhshrink));
  add("input where above the threshold, else value. F.threshold.",
      overload("nn.functional.threshold(Tensor input, Scalar threshold, Scalar value, bool inplace=False) -> Tensor",
               &threshold));
  for (Form& form : forms) form.reads_once = form.name() == "relu" || form.name() == "silu";
  return forms;
}

}  // namespace sluice::ops
