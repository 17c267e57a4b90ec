// torch.nn.functional's spelling of activations, normalisation, tables and losses.
#include <algorithm>

#include "graph/executor.h"
#include "graph/ops/activation.h"
#include "graph/ops/comparison.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/embedding.h"
#include "graph/ops/forms.h"
#include "graph/ops/losses.h"
#include "graph/ops/movement.h"
#include "graph/ops/normalization.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"

namespace sluice::ops {
namespace {

using Reduction = std::string;

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

Value rms_norm_of(const Value& x, const Ints& shape, const Value& weight, const std::optional<double>& eps) {
  // As torch: the machine epsilon of the dtype that is computed in.
  const double epsilon = x.dtype() == DType::kFloat64 ? 0x1p-52 : 0x1p-23;
  return rms_norm(x, shape, weight, eps.value_or(epsilon));
}

Value normalize(const Value& x, double p, const Ints& dim, double eps) {
  return div(x, expand(clamp(norm(x, p, dim, true), Operand(eps), std::nullopt), x.shape()));
}

Value embedding_of(const Value& index, const Value& weight, const std::optional<int64_t>& padding_idx) {
  SLUICE_CHECK_KIND(kRuntime, weight.rank() == 2, "embedding: 'weight' must be 2-D: got shape {}",
                    weight.shape().str());
  const int64_t row = padding_idx.value_or(-1);
  return embedding(weight, index, padding_idx && row < 0 ? row + weight.shape()[0] : row);
}

Value pad_by(const Value& input, const Ints& amounts, const std::string& mode, const std::optional<double>& value) {
  SLUICE_CHECK_KIND(kUnsupported, mode == "constant", "pad: mode '{}' is not supported; use 'constant'", mode);
  SLUICE_CHECK(amounts.size() % 2 == 0 && static_cast<int>(amounts.size()) <= 2 * input.rank(),
               "pad: got {} amounts for a tensor of {} dims; give a pair for each dim, last first", amounts.size(),
               input.rank());
  Value x = input;
  Ints low(x.rank(), 0), high(x.rank(), 0);
  for (size_t i = 0; i < amounts.size() / 2; ++i) {
    const int d = x.rank() - 1 - static_cast<int>(i);
    const int64_t size = x.shape()[d], before = amounts[2 * i], after = amounts[2 * i + 1];
    low[d] = std::max<int64_t>(before, 0), high[d] = std::max<int64_t>(after, 0);
    const int64_t start = std::max<int64_t>(-before, 0), stop = size - std::max<int64_t>(-after, 0);
    if (start != 0 || stop != size) x = narrow(x, d, start, stop - start);
  }
  return pad(x, low, high, value.value_or(0));
}

// As torch: eps bounds the values of the norms, while gradients are those of the norms.
Value bounded_norm(const Value& x, int64_t dim, double eps) {
  const Value length = norm(x, 2, Ints{dim}, true);
  const Value missing = sub(clamp(length, Operand(eps), std::nullopt), length);
  return add(length, current_executor().detach(missing));
}

Value cosine_similarity(const Value& a, const Value& b, int64_t dim, double eps) {
  const DType dtype = promote(a.dtype(), b.dtype());
  SLUICE_CHECK_KIND(kRuntime, is_floating(dtype),
                    "cosine_similarity: expected common dtype to be floating point, yet common dtype is {}",
                    dtype_name(dtype));
  const Shape shape = broadcast_shapes(a.shape(), b.shape(), "cosine_similarity");
  const Value x = expand(cast(a, dtype), shape), y = expand(cast(b, dtype), shape);
  return sum(mul(div(x, bounded_norm(x, dim, eps)), div(y, bounded_norm(y, dim, eps))), Ints{dim});
}

// Torch's older way to say "sum", "none" and "mean".
Reduction reduction_of(const std::optional<bool>& size_average, const std::optional<bool>& reduce,
                       const Reduction& given) {
  if (!size_average && !reduce) return given;
  if (!reduce.value_or(true)) return "none";
  return size_average.value_or(true) ? "mean" : "sum";
}

Value reduced(const Value& loss, const Reduction& reduction) {
  SLUICE_CHECK(reduction == "mean" || reduction == "sum" || reduction == "none",
               "reduction is '{}'; must be 'mean', 'sum' or 'none'", reduction);
  return reduction == "mean" ? mean(loss) : reduction == "sum" ? sum(loss) : loss;
}

Value kl_div(const Value& x, const Value& target, const std::optional<bool>& average, const std::optional<bool>& reduce,
             const Reduction& given, bool log_target) {
  const Reduction reduction = reduction_of(average, reduce, given);
  const Value loss =
      log_target ? mul(exp(target), sub(target, x)) : mul(target, sub(log(where(eq(target, 0), 1.0, target)), x));
  if (reduction != "batchmean") return reduced(loss, reduction);
  return x.rank() == 0 ? loss : div(sum(loss), x.shape()[0]);
}

Form functional(const char* doc, Overload o) { return {.doc = doc, .overloads = {std::move(o)}}; }

void add_activations(std::vector<Form>& forms) {
  const auto add = [&](const char* doc, Overload o) { forms.push_back(functional(doc, std::move(o))); };
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
      overload("nn.functional.elu(Tensor input, float alpha=1.0, bool inplace=False) -> Tensor", &elu));
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
}

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
      overload("nn.functional.normalize(Tensor input, float p=2.0, int[1] dim=1, float eps=1e-12) -> Tensor",
               &normalize));
  add("Cosine of the angle between vectors along dim, norms being at least eps. F.cosine_similarity.",
      overload("nn.functional.cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-08) -> Tensor",
               &cosine_similarity));
  add("Rows of weight (V, D) by index: index.shape + (D,); row padding_idx gets no gradient. F.embedding.",
      overload("nn.functional.embedding(Tensor input, Tensor weight, int? padding_idx=None) -> Tensor", &embedding_of));
  add("Padded by (low, high) pairs from the last dim backwards; negative amounts crop. F.pad.",
      overload("nn.functional.pad(Tensor input, int[] pad, str mode=\"constant\", float? value=None) -> Tensor",
               &pad_by));
}

using OptionalBool = std::optional<bool>;
using PlainLoss = Value (*)(const Value&, const Value&, const std::string&);

void add_plain_loss(std::vector<Form>& forms, const char* name, const char* doc, PlainLoss f) {
  const std::string signature = std::string("nn.functional.") + name +
                                "(Tensor input, Tensor target, bool? size_average=None, bool? reduce=None, str "
                                "reduction=\"mean\") -> Tensor";
  const auto loss = [f](const Value& x, const Value& target, const OptionalBool& average, const OptionalBool& reduce,
                        const Reduction& r) { return f(x, target, reduction_of(average, reduce, r)); };
  forms.push_back(functional(doc, overload(signature, loss)));
}

Value smooth_l1(const Value& x, const Value& target, const OptionalBool& average, const OptionalBool& reduce,
                const Reduction& r, double beta) {
  return smooth_l1_loss(x, target, beta, reduction_of(average, reduce, r));
}

Value huber(const Value& x, const Value& target, const Reduction& r, double delta) {
  return huber_loss(x, target, delta, r);
}

Value cross_entropy_of(const Value& x, const Value& target, const Value& weight, const OptionalBool& average,
                       int64_t ignore, const OptionalBool& reduce, const Reduction& r, double smoothing) {
  return cross_entropy(x, target, {weight, ignore, smoothing, reduction_of(average, reduce, r)});
}

Value nll(const Value& x, const Value& target, const Value& weight, const OptionalBool& average, int64_t ignore,
          const OptionalBool& reduce, const Reduction& r) {
  return nll_loss(x, target, {weight, ignore, 0.0, reduction_of(average, reduce, r)});
}

Value bce(const Value& x, const Value& target, const Value& weight, const OptionalBool& average,
          const OptionalBool& reduce, const Reduction& r) {
  return binary_cross_entropy(x, target, {weight, {}, reduction_of(average, reduce, r)});
}

Value bce_with_logits(const Value& x, const Value& target, const Value& weight, const OptionalBool& average,
                      const OptionalBool& reduce, const Reduction& r, const Value& pos_weight) {
  return binary_cross_entropy_with_logits(x, target, {weight, pos_weight, reduction_of(average, reduce, r)});
}

void add_losses(std::vector<Form>& forms) {
  const auto add = [&](const char* doc, Overload o) { forms.push_back(functional(doc, std::move(o))); };
  add_plain_loss(forms, "mse_loss", "Squared differences. F.mse_loss.", &mse_loss);
  add_plain_loss(forms, "l1_loss", "Absolute differences. F.l1_loss.", &l1_loss);
  add("Squared differences below beta, absolute ones above. F.smooth_l1_loss.",
      overload(
          "nn.functional.smooth_l1_loss(Tensor input, Tensor target, bool? size_average=None, bool? reduce=None, str "
          "reduction=\"mean\", float beta=1.0) -> Tensor",
          &smooth_l1));
  add("Squared differences below delta, absolute ones above, scaled by delta. F.huber_loss.",
      overload(
          "nn.functional.huber_loss(Tensor input, Tensor target, str reduction=\"mean\", float delta=1.0) -> Tensor",
          &huber));
  add("Of logits (C,), (N, C) or (N, C, d...) and class indices or probabilities. F.cross_entropy.",
      overload(
          "nn.functional.cross_entropy(Tensor input, Tensor target, Tensor? weight=None, bool? size_average=None, int "
          "ignore_index=-100, bool? reduce=None, str reduction=\"mean\", float label_smoothing=0.0) -> Tensor",
          &cross_entropy_of));
  add("Of log-probabilities and class indices. F.nll_loss.",
      overload("nn.functional.nll_loss(Tensor input, Tensor target, Tensor? weight=None, bool? size_average=None, int "
               "ignore_index=-100, bool? reduce=None, str reduction=\"mean\") -> Tensor",
               &nll));
  add("Of probabilities and targets in [0, 1]. F.binary_cross_entropy.",
      overload("nn.functional.binary_cross_entropy(Tensor input, Tensor target, Tensor? weight=None, bool? "
               "size_average=None, bool? reduce=None, str reduction=\"mean\") -> Tensor",
               &bce));
  add("Of logits and targets in [0, 1]. F.binary_cross_entropy_with_logits.",
      overload("nn.functional.binary_cross_entropy_with_logits(Tensor input, Tensor target, Tensor? weight=None, bool? "
               "size_average=None, bool? reduce=None, str reduction=\"mean\", Tensor? pos_weight=None) -> Tensor",
               &bce_with_logits));
  add("Kullback-Leibler divergence of log-probabilities from probabilities. F.kl_div.",
      overload("nn.functional.kl_div(Tensor input, Tensor target, bool? size_average=None, bool? reduce=None, str "
               "reduction=\"mean\", bool log_target=False) -> Tensor",
               &kl_div));
}

}  // namespace

std::vector<Form> network_forms() {
  std::vector<Form> forms;
  add_activations(forms);
  add_normalisation(forms);
  add_losses(forms);
  return forms;
}

}  // namespace sluice::ops
