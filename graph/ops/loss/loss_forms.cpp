// torch.nn.functional's spelling of losses of elements and of classes.
#include <limits>
#include <numbers>

#include "graph/ops/activation.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/ctc.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/forms.h"
#include "graph/ops/indexing.h"
#include "graph/ops/losses.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"

namespace sluice::ops {
namespace {

using Reduction = std::string;

Form functional(const char* doc, Overload o) { return {.doc = doc, .overloads = {std::move(o)}}; }

using OptionalBool = std::optional<bool>;
using PlainLoss = Value (*)(const Value&, const Value&, const std::string&);

// The plain loss, or with weights of the elements, whose mean is that of the weights.
Value weighted(PlainLoss f, const Value& x, const Value& target, const Value& weight, const Reduction& r) {
  if (!weight.defined()) return f(x, target, r);
  SLUICE_CHECK(weight.shape() == x.shape(), "loss: Weights and input must have the same size: got {} and {}",
               weight.shape().str(), x.shape().str());
  const Value loss = mul(f(x, target, "none"), weight);
  return r == "mean" ? div(sum(loss), sum(weight)) : reduce_loss(loss, r, "loss");
}

void add_plain_loss(std::vector<Form>& forms, const char* name, const char* doc, PlainLoss f) {
  const std::string signature = std::string("nn.functional.") + name +
                                "(Tensor input, Tensor target, bool? size_average=None, bool? reduce=None, str "
                                "reduction=\"mean\", Tensor? weight=None) -> Tensor";
  const auto loss = [f](const Value& x, const Value& target, const OptionalBool& average, const OptionalBool& reduce,
                        const Reduction& r, const Value& weight) {
    return weighted(f, x, target, weight, reduction_of(average, reduce, r));
  };
  forms.push_back(functional(doc, overload(signature, loss)));
}

Value smooth_l1(const Value& x, const Value& target, const OptionalBool& average, const OptionalBool& reduce,
                const Reduction& r, double beta) {
  return smooth_l1_loss(x, target, beta, reduction_of(average, reduce, r));
}

Value huber(const Value& x, const Value& target, const Reduction& r, double delta, const Value& weight) {
  if (!weight.defined()) return huber_loss(x, target, delta, r);
  SLUICE_CHECK(weight.shape() == x.shape(), "loss: Weights and input must have the same size: got {} and {}",
               weight.shape().str(), x.shape().str());
  return reduce_loss(mul(huber_loss(x, target, delta, "none"), weight), r, "huber_loss");
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
  SLUICE_CHECK(x.shape() == target.shape(),
               "binary_cross_entropy_with_logits: Target size ({}) must be the same as input size ({})",
               target.shape().str(), x.shape().str());
  return binary_cross_entropy_with_logits(x, target, {weight, pos_weight, reduction_of(average, reduce, r)});
}

Value kl_div(const Value& x, const Value& target, const OptionalBool& average, const OptionalBool& reduce,
             const Reduction& given, bool log_target) {
  const Reduction reduction = reduction_of(average, reduce, given);
  const Value loss = log_target ? mul(exp(target), sub(target, x)) : sub(xlogy(target, target), mul(target, x));
  if (reduction != "batchmean") return reduce_loss(loss, reduction, "kl_div");
  return x.rank() == 0 ? loss : div(sum(loss), x.shape()[0]);
}

Value poisson(const Value& x, const Value& target, bool log_input, bool full, const OptionalBool& average, double eps,
              const OptionalBool& reduce, const Reduction& given) {
  Value loss = log_input ? sub(exp(x), mul(target, x)) : sub(x, mul(target, log(add(x, eps))));
  if (full) {  // Stirling's formula for log(target!), which is 0 up to 1
    const Value large = gt(target, 1), t = where(large, target, 1.0);
    const Value half_log = mul(log(mul(t, 2 * std::numbers::pi)), 0.5);
    loss = add(loss, where(large, add(sub(mul(t, log(t)), t), half_log), 0.0));
  }
  return reduce_loss(loss, reduction_of(average, reduce, given), "poisson_nll_loss");
}

Value soft_margin(const Value& x, const Value& target, const OptionalBool& average, const OptionalBool& reduce,
                  const Reduction& given) {
  const char* const where = "soft_margin_loss";
  const Value opposed = written_as(x, mul(neg(x), target), where);
  const Value loss = written_as(opposed, log1p(exp(opposed)), where);
  return reduce_loss(loss, reduction_of(average, reduce, given), where);
}

Value multilabel_soft_margin(const Value& x, const Value& target, const Value& weight, const OptionalBool& average,
                             const OptionalBool& reduce, const Reduction& given) {
  SLUICE_CHECK_KIND(kIndex, x.rank() > 0, "multilabel_soft_margin_loss: the input has no dim of classes: shape {}",
                    x.shape().str());
  Value loss = neg(add(mul(target, logsigmoid(x)), mul(sub(1, target), logsigmoid(neg(x)))));
  if (weight.defined()) loss = mul(loss, weight);
  // As torch: the input says which dim has the classes, and how many there are.
  return reduce_loss(div(sum(loss, Ints{x.rank() - 1}), x.shape().back()), reduction_of(average, reduce, given),
                     "multilabel_soft_margin_loss");
}

// Classes of a sample or of a batch as rows: (N, C).
Value as_rows(const Value& x) { return x.rank() > 1 ? x : reshape(x, {1, numel(x.shape())}); }

Value multilabel_margin(const Value& input, const Value& target, const OptionalBool& average,
                        const OptionalBool& reduce, const Reduction& given) {
  SLUICE_CHECK_KIND(kRuntime, input.rank() <= 2 && numel(input.shape()) > 0,
                    "multilabel_margin_loss: Expected non-empty vector or matrix with optional 0-dim batch size, but "
                    "got: {}",
                    input.shape().str());
  SLUICE_CHECK_KIND(kRuntime, target.shape() == input.shape(),
                    "multilabel_margin_loss: inconsistent target size: {} for size: {}", target.shape().str(),
                    input.shape().str());
  const Value x = as_rows(input), t = as_rows(target);
  const int64_t n = x.shape()[0], classes = x.shape()[1];
  // Targets of a row end before its first negative one.
  const Value valid = eq(cumsum(cast(lt(t, 0), DType::kInt64), 1), 0), index = where(valid, t, 0);
  const Value chosen = gt(scatter_add(zeros(x.shape(), DType::kInt64), index, cast(valid, DType::kInt64), 1), 0);
  const Value at_target = reshape(gather(x, index, 1), {n, classes, 1}), others = reshape(x, {n, 1, classes});
  const Value counted = logical_and(reshape(valid, {n, classes, 1}), logical_not(reshape(chosen, {n, 1, classes})));
  const Value far = sub(1.0, sub(at_target, others));
  const Value hinge = where(logical_and(counted, gt(far, 0)), far, 0.0);  // NaN is none
  const Value loss = div(sum(hinge, Ints{1, 2}), classes);
  return reduce_loss(input.rank() > 1 ? loss : reshape(loss, {}), reduction_of(average, reduce, given),
                     "multilabel_margin_loss");
}

Value multi_margin(const Value& input, const Value& target, int64_t p, double margin, const Value& weight,
                   const OptionalBool& average, const OptionalBool& reduce, const Reduction& given) {
  SLUICE_CHECK(p == 1 || p == 2, "multi_margin_loss: only p == 1 and p == 2 supported: got {}", p);
  SLUICE_CHECK_KIND(kRuntime, input.rank() <= 2 && numel(input.shape()) > 0,
                    "multi_margin_loss: Expected non-empty vector or matrix with optional 0-dim batch size, but got: "
                    "{}",
                    input.shape().str());
  const Value x = as_rows(input);
  const int64_t n = x.shape()[0], classes = x.shape()[1];
  SLUICE_CHECK_KIND(kRuntime, numel(target.shape()) == n && target.rank() <= 1,
                    "multi_margin_loss: inconsistent target size, expected {} but got {}", n, target.shape().str());
  SLUICE_CHECK(!weight.defined() || weight.rank() == 1,
               "multi_margin_loss: weight must be one-dimensional: got {} dims", weight.defined() ? weight.rank() : 0);
  SLUICE_CHECK_KIND(kRuntime, !weight.defined() || weight.shape() == Shape({classes}),
                    "multi_margin_loss: inconsistent weight size, expected {} but got {}", classes,
                    weight.defined() ? weight.shape().str() : "");
  const Value y = reshape(target, {n, 1});
  const Value other = ne(reshape(iota(0, 1, classes, target.dtype()), {1, classes}), y);
  const Value far = add(sub(margin, gather(x, y, 1)), x);
  Value hinge = p == 2 ? square(far) : far;
  if (weight.defined()) hinge = mul(hinge, reshape(index_select(weight, reshape(target, {n}), 0), {n, 1}));
  hinge = where(logical_and(other, gt(far, 0)), hinge, 0.0);  // NaN is none
  const Value loss = div(sum(hinge, Ints{1}), classes);
  return reduce_loss(input.rank() > 1 ? loss : reshape(loss, {}), reduction_of(average, reduce, given),
                     "multi_margin_loss");
}

// Lengths as a tensor (N,).
Value ctc(const Value& log_probs, const Value& targets, const Value& input_lengths, const Value& target_lengths,
          int64_t blank, const Reduction& reduction, bool zero_infinity) {
  SLUICE_CHECK_KIND(kRuntime, log_probs.rank() == 2 || log_probs.rank() == 3,
                    "ctc_loss: log_probs must be (T, N, C) or (T, C): got {}", log_probs.shape().str());
  SLUICE_CHECK_KIND(kRuntime, is_floating(log_probs.dtype()),
                    "ctc_loss: not implemented for dtype {}: log_probs must be floating",
                    dtype_name(log_probs.dtype()));
  const bool added = log_probs.rank() == 2;
  const Value x = added ? unsqueeze(log_probs, 1) : log_probs;
  const int64_t n = x.shape()[1], classes = x.shape()[2];
  SLUICE_CHECK_KIND(kRuntime, blank >= 0 && blank < classes, "ctc_loss: blank must be in label range: got {} of {}",
                    blank, classes);
  SLUICE_CHECK_KIND(kRuntime, x.shape()[0] > 0 && n > 0, "ctc_loss: log_probs tensor must not be empty: got {}",
                    x.shape().str());
  for (const auto& [name, lengths] :
       {std::pair("input_lengths", &input_lengths), {"target_lengths", &target_lengths}}) {
    SLUICE_CHECK_KIND(kRuntime, !is_floating(lengths->dtype()), "ctc_loss: {} must be integral: got {}", name,
                      dtype_name(lengths->dtype()));
    SLUICE_CHECK_KIND(kRuntime, numel(lengths->shape()) == n, "ctc_loss: {} must be of size batch_size: got {} for {}",
                      name, lengths->shape().str(), n);
  }
  SLUICE_CHECK_KIND(kRuntime, targets.rank() == 1 || (targets.rank() == 2 && targets.shape()[0] == n),
                    "ctc_loss: Expected targets of shape ({}, S) or of one dim, but got {}", n, targets.shape().str());
  const Value count = reshape(target_lengths, {n});
  Value loss = ctc_loss(x, added && targets.rank() == 1 ? unsqueeze(targets, 0) : targets, reshape(input_lengths, {n}),
                        count, blank);
  if (zero_infinity) loss = where(eq(loss, std::numeric_limits<double>::infinity()), 0.0, loss);
  if (reduction == "mean") return mean(div(loss, clamp(cast(count, loss.dtype()), Operand(1), std::nullopt)));
  loss = reduce_loss(loss, reduction, "ctc_loss");
  return added && reduction == "none" ? reshape(loss, {}) : loss;
}

Value lengths_of(const Ints& lengths) {
  std::vector<Value> parts;
  for (int64_t length : lengths) parts.push_back(full({1}, static_cast<double>(length), DType::kInt64));
  return parts.empty() ? zeros({0}, DType::kInt64) : concat(parts, 0);
}

Value ctc_of_ints(const Value& log_probs, const Value& targets, const Ints& input_lengths, const Ints& target_lengths,
                  int64_t blank, const Reduction& reduction, bool zero_infinity) {
  const int64_t steps = log_probs.rank() > 0 ? log_probs.shape()[0] : 0;
  for (int64_t length : input_lengths)
    SLUICE_CHECK_KIND(kRuntime, length >= 0 && length <= steps,
                      "ctc_loss: Expected input_lengths to have value at most {}, but got value {}", steps, length);
  for (int64_t length : target_lengths)
    SLUICE_CHECK_KIND(
        kRuntime, length >= 0 && (targets.rank() == 0 || length <= targets.shape().back()),
        "ctc_loss: Expected target_lengths to have value at least 0 and at most the length of targets {}, but got "
        "value {}",
        targets.shape().str(), length);
  return ctc(log_probs, targets, lengths_of(input_lengths), lengths_of(target_lengths), blank, reduction,
             zero_infinity);
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
      overload("nn.functional.huber_loss(Tensor input, Tensor target, str reduction=\"mean\", float delta=1.0, Tensor? "
               "weight=None) -> Tensor",
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
  add("exp(input) - target * input, or of rates, input - target * log(input + eps). F.poisson_nll_loss.",
      overload(
          "nn.functional.poisson_nll_loss(Tensor input, Tensor target, bool log_input=True, bool full=False, bool? "
          "size_average=None, float eps=1e-08, bool? reduce=None, str reduction=\"mean\") -> Tensor",
          &poisson));
  add("log(1 + exp(-target * input)). F.soft_margin_loss.",
      overload(
          "nn.functional.soft_margin_loss(Tensor input, Tensor target, bool? size_average=None, bool? reduce=None, "
          "str reduction=\"mean\") -> Tensor",
          &soft_margin));
  add("Mean over classes of binary cross-entropies of logits. F.multilabel_soft_margin_loss.",
      overload("nn.functional.multilabel_soft_margin_loss(Tensor input, Tensor target, Tensor? weight=None, bool? "
               "size_average=None, bool? reduce=None, str reduction=\"mean\") -> Tensor",
               &multilabel_soft_margin));
  add("Hinges between target classes, listed up to a -1, and all others. F.multilabel_margin_loss.",
      overload("nn.functional.multilabel_margin_loss(Tensor input, Tensor target, bool? size_average=None, bool? "
               "reduce=None, str reduction=\"mean\") -> Tensor",
               &multilabel_margin));
  add("Hinges, to the power p, between the target class and all others. F.multi_margin_loss.",
      overload("nn.functional.multi_margin_loss(Tensor input, Tensor target, int p=1, float margin=1.0, Tensor? "
               "weight=None, bool? size_average=None, bool? reduce=None, str reduction=\"mean\") -> Tensor",
               &multi_margin));
  const std::string head = "nn.functional.ctc_loss(Tensor log_probs, Tensor targets, ",
                    tail = ", int blank=0, str reduction=\"mean\", bool zero_infinity=False) -> Tensor";
  forms.push_back({.doc = "Connectionist temporal classification of log-probabilities (T, N, C) and targets (N, S), or "
                          "(sum of lengths,). F.ctc_loss.",
                   .overloads = {overload(head + "Tensor input_lengths, Tensor target_lengths" + tail, &ctc),
                                 overload(head + "int[] input_lengths, int[] target_lengths" + tail, &ctc_of_ints)}});
}

}  // namespace

std::vector<Form> loss_forms() {
  std::vector<Form> forms;
  add_losses(forms);
  return forms;
}

}  // namespace sluice::ops
