#include "graph/ops/losses.h"

#include <limits>

#include "graph/executor.h"
#include "graph/ops/activation.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/composed.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/indexing.h"
#include "graph/ops/movement.h"
#include "graph/ops/norm_common.h"
#include "graph/ops/reduction.h"
#include "graph/ops/softmax.h"

namespace sluice::ops {
namespace {

void check_reduction(const std::string& reduction, const char* where) {
  SLUICE_CHECK(reduction == "mean" || reduction == "sum" || reduction == "none",
               "{}: '{}' is not a valid value for reduction; it must be 'mean', 'sum' or 'none'", where, reduction);
}

Value result_in(DType dtype, const Value& y, const char* where) {
  SLUICE_CHECK_KIND(kRuntime, can_cast(y.dtype(), dtype),
                    "{}: result type {} can't be cast to the desired output type {}", where, dtype_name(y.dtype()),
                    dtype_name(dtype));
  return cast(y, dtype);
}

// Params of cross_entropy and its backward.
struct Params {
  int64_t ignore_index;
  double smoothing;
  std::string reduction;
};
Params params_of(const Attrs& a) { return {attr<int64_t>(a, 0), attr<double>(a, 1), attr<std::string>(a, 2)}; }

// Checks logits (N, C), target (N,), weight? (C,) standing at `at` in the inputs.
void check_operands(Types in, Present present, size_t at, const Attrs& a, const char* where) {
  const TensorType &x = in[at], &t = in[at + 1];
  check_floating(x, where);
  SLUICE_CHECK(x.shape.rank() == 2 && x.shape[1] >= 1,
               "{}: logits have the wrong shape: {}; they must be (samples, classes)", where, x.shape.str());
  check_index(t, where);
  SLUICE_CHECK(t.shape == Shape({x.shape[0]}),
               "{}: target does not fit: logits are {}, target is {}; it must have one class index per sample", where,
               x.shape.str(), t.shape.str());
  if (at + 2 < in.size() && present[at + 2]) {
    SLUICE_CHECK(in[at + 2].shape == Shape({x.shape[1]}) && in[at + 2].dtype == x.dtype,
                 "{}: weight does not fit: {}; logits {} ask for {}", where, in[at + 2].str(), x.str(),
                 TensorType{x.dtype, {x.shape[1]}}.str());
  }
  const Params p = params_of(a);
  check_reduction(p.reduction, where);
  SLUICE_CHECK_KIND(kRuntime, p.smoothing >= 0 && p.smoothing <= 1,
                    "{}: label_smoothing is out of range: {}; it must be between 0 and 1", where, p.smoothing);
}

TensorType loss_type(const TensorType& logits, const Params& p) {
  return {logits.dtype, p.reduction == "none" ? Shape{logits.shape[0]} : Shape{}};
}
std::vector<TensorType> infer_cross_entropy(Types in, Present present, const Attrs& a) {
  check_operands(in, present, 0, a, "cross_entropy");
  return {loss_type(in[0], params_of(a))};
}
std::vector<TensorType> infer_losses_backward(Types in, Present present, const Attrs& a) {
  check_operands(in, present, 1, a, "cross_entropy_backward");
  const TensorType expected = loss_type(in[1], params_of(a));
  SLUICE_CHECK(in[0] == expected, "cross_entropy_backward: gradient does not fit: {}; the loss is {}", in[0].str(),
               expected.str());
  return {in[1]};
}

// Per sample: is it counted, the class to look up, and the class's weight (0 where it is not counted).
struct Targets {
  Value valid, index, weight;
};
Targets targets_of(const Value& target, const Value& weight, int64_t ignore_index, DType dtype) {
  const Value valid = ne(target, ignore_index), index = where(valid, target, 0), counted = cast(valid, dtype);
  return {valid, index, weight.defined() ? mul(index_select(weight, index, 0), counted) : counted};
}

Value reduce_weighted(const Value& loss, const Value& weights, const std::string& reduction) {
  if (reduction == "none") return loss;
  if (reduction == "sum") return sum(loss);
  // If no sample counts, the mean is NaN, and the gradient 0, as in torch.
  const Value total = sum(weights), none = eq(total, 0);
  return where(none, std::numeric_limits<double>::quiet_NaN(), div(sum(loss), where(none, 1.0, total)));
}

// From log-probabilities (N, C).
Value nll(const Value& log_probs, const Value& target, const Value& weight, const Params& p) {
  const int64_t n = log_probs.shape()[0], classes = log_probs.shape()[1];
  const Targets t = targets_of(target, weight, p.ignore_index, log_probs.dtype());
  const Value picked = reshape(gather(log_probs, reshape(t.index, {n, 1}), 1), {n});
  const auto where_counted = [&](const Value& x) { return where(t.valid, x, 0.0); };  // what is not may be infinite
  Value loss = mul(where_counted(neg(picked)), t.weight);
  if (p.smoothing > 0) {
    const Value all = neg(sum(weight.defined() ? mul(log_probs, weight) : log_probs, Ints{1}));
    loss = add(mul(loss, 1 - p.smoothing), mul(where_counted(all), p.smoothing / static_cast<double>(classes)));
  }
  return reduce_weighted(loss, t.weight, p.reduction);
}

std::vector<Value> decompose_cross_entropy(std::span<const Value> in, const Attrs& a) {
  const DType dtype = stat_dtype(in[0].dtype());
  const Value w = input_or_none(in, 2);
  const Value loss = nll(log_softmax(cast(in[0], dtype), 1), in[1], w.defined() ? cast(w, dtype) : w, params_of(a));
  return {cast(loss, in[0].dtype())};
}

std::vector<Value> decompose_losses_backward(std::span<const Value> in, const Attrs& a) {
  const DType dtype = stat_dtype(in[1].dtype());
  const Params p = params_of(a);
  const int64_t n = in[1].shape()[0], classes = in[1].shape()[1];
  Value weight = input_or_none(in, 3);
  if (weight.defined()) weight = cast(weight, dtype);
  const Targets t = targets_of(in[2], weight, p.ignore_index, dtype);
  const Value probs = softmax(cast(in[1], dtype), 1);
  const Value chosen =
      cast(eq(reshape(t.index, {n, 1}), reshape(iota(0, 1, classes, t.index.dtype()), {1, classes})), dtype);
  Value d = mul(sub(probs, chosen), reshape(mul(t.weight, 1 - p.smoothing), {n, 1}));
  if (p.smoothing > 0) {
    const Value all =
        weight.defined() ? sub(mul(probs, sum(weight)), weight) : sub(mul(probs, static_cast<double>(classes)), 1.0);
    d = add(d, mul(all, mul(reshape(cast(t.valid, dtype), {n, 1}), p.smoothing / static_cast<double>(classes))));
  }
  Value scale = cast(in[0], dtype);
  if (p.reduction == "mean") {
    const Value total = sum(t.weight);
    scale = where(eq(total, 0), 0.0, div(scale, total));
  }
  if (p.reduction == "none") scale = reshape(scale, {n, 1});
  return {cast(mul(d, scale), in[1].dtype())};
}

extern const OpDef cross_entropy_backward_def;

std::vector<Value> grad_cross_entropy(const GradContext& c) {
  std::vector<Value> grads(c.inputs.size());
  const Value weight = input_or_none(c.inputs, 2);
  SLUICE_CHECK_KIND(kUnsupported, !(weight.defined() && c.needs[2]),
                    "cross_entropy: weight requires a gradient: shape {}; the loss is not differentiated with respect "
                    "to class weights",
                    weight.shape().str());
  if (c.needs[0])
    grads[0] = call1(cross_entropy_backward_def, {c.grad_outputs[0], c.inputs[0], c.inputs[1], weight}, c.attrs);
  return grads;
}

std::vector<SbpRow> sbp_forward(Types in, const Attrs& a) {
  const auto B = Sbp::broadcast(), S = Sbp::split(0);
  const std::string reduction = attr<std::string>(a, 2);
  std::vector<SbpRow> rows = {{std::vector<Sbp>(in.size()), {B}}};
  if (reduction != "mean") {  // the mean divides by what all samples count
    SbpRow row{std::vector<Sbp>(in.size()), {reduction == "none" ? S : Sbp::partial_sum()}};
    row.inputs[0] = row.inputs[1] = S;
    rows.push_back(row);
  }
  return rows;
}
std::vector<SbpRow> sbp_backward(Types in, const Attrs& a) {
  const std::string reduction = attr<std::string>(a, 2);
  std::vector<SbpRow> rows = {{std::vector<Sbp>(in.size()), {Sbp::broadcast()}}};
  if (reduction != "mean") {
    SbpRow row{std::vector<Sbp>(in.size()), {Sbp::split(0)}};
    row.inputs[0] = reduction == "none" ? Sbp::split(0) : Sbp::broadcast();
    row.inputs[1] = row.inputs[2] = Sbp::split(0);
    rows.push_back(row);
  }
  return rows;
}
Cost cost(Types in, Types out, const Attrs&) {
  return {10 * static_cast<double>(numel(in[in.size() > 3 ? 1 : 0].shape)), operand_bytes(in, out)};
}

const std::vector<Param> kParams = {
    {"ignore_index", int64_t{-100}}, {"label_smoothing", 0.0}, {"reduction", std::string("mean")}};
const SampleInput kTarget{.shape = {5}, .dtype = DType::kInt64, .low = 0, .high = 7};
const SampleInput kWeight{.shape = {7}, .low = 0.5, .high = 2};

const OpDef cross_entropy_def{
    .name = "cross_entropy",
    .doc = "Cross-entropy of logits (N, C) and class indices (N,), as torch.nn.functional.cross_entropy.",
    .inputs = {"logits", "target", "weight?"},
    .params = kParams,
    .infer = infer_cross_entropy,
    .grad = grad_cross_entropy,
    .decompose = decompose_cross_entropy,
    .sbp = sbp_forward,
    .cost = cost,
    .samples = {
        {{{{5, 7}}, kTarget, kAbsent}},
        {{{{5, 7}}, kTarget, kAbsent}, {int64_t{3}, 0.1, std::string("sum")}},
        {{{{5, 7}}, kTarget, kAbsent}, {int64_t{-100}, 0.2, std::string("none")}},
    }};

const OpDef cross_entropy_backward_def{
    .name = "cross_entropy_backward",
    .doc = "Gradient of cross_entropy with respect to the logits.",
    .inputs = {"grad", "logits", "target", "weight?"},
    .params = kParams,
    .infer = infer_losses_backward,
    .decompose = decompose_losses_backward,
    .sbp = sbp_backward,
    .cost = cost,
    .samples = {
        {{{{}}, {{5, 7}}, kTarget, kAbsent}},
        {{{{}}, {{5, 7}}, kTarget, kWeight}, {int64_t{3}, 0.1, std::string("mean")}},
        {{{{5}}, {{5, 7}}, kTarget, kWeight}, {int64_t{-100}, 0.0, std::string("none")}},
    }};

// torch bounds each logarithm below by -100, and the denominator of the gradient by 1e-12.
std::vector<Value> decompose_bce(std::span<const Value> in, const Attrs&) {
  const Value &x = in[0], &target = in[1];
  const Value yes = maximum(log(x), -100.0), no = maximum(log1p(neg(x)), -100.0);
  return {neg(add(mul(target, yes), mul(sub(1.0, target), no)))};
}
std::vector<Value> grad_bce(const GradContext& c) {
  // In 16 bits the bound would be 0, and the quotient overflow.
  const DType dtype = c.inputs[0].dtype(), wide = stat_dtype(dtype);
  const Value g = cast(c.grad_outputs[0], wide), x = cast(c.inputs[0], wide), target = cast(c.inputs[1], wide);
  const auto narrow = [&](const Value& grad) {
    return dtype == DType::kFloat16 ? cast(clamp(grad, Operand(-65504.0), Operand(65504.0)), dtype) : cast(grad, dtype);
  };
  std::vector<Value> grads(2);
  if (c.needs[0]) grads[0] = narrow(mul(g, div(sub(x, target), maximum(mul(x, sub(1.0, x)), 1e-12))));
  if (c.needs[1]) grads[1] = narrow(mul(g, sub(maximum(log1p(neg(x)), -100.0), maximum(log(x), -100.0))));
  return grads;
}

const SampleInput kProbability{.shape = {3, 4}, .low = 0.1, .high = 0.9};

const OpDef binary_cross_entropy_def{
    .name = "binary_cross_entropy",
    .doc =
        "-(target log(x) + (1 - target) log(1 - x)) of probabilities x, per element; both logarithms are at least "
        "-100. torch.nn.functional.binary_cross_entropy without reduction.",
    .inputs = {"x", "target"},
    .infer = [](Types in, Present, const Attrs&) -> std::vector<TensorType> {
      check_floating(in[0], "x");
      SLUICE_CHECK(in[0] == in[1], "target: {} does not fit the input {}; dtype and size must be equal", in[1].str(),
                   in[0].str());
      return {in[0]};
    },
    .grad = grad_bce,
    .decompose = decompose_bce,
    .sbp = elementwise_sbp,
    .samples = {{{kProbability, kProbability}},
                {{{.shape = {}, .low = 0.1, .high = 0.9}, {.shape = {}, .low = 0.1, .high = 0.9}}},
                {{{.shape = {0, 3}}, {.shape = {0, 3}}}}}};

// (C,), (N, C) or (N, C, d...) as (N', C).
Value classes_last(const Value& x) {
  if (x.rank() == 1) return reshape(x, {1, x.shape()[0]});
  if (x.rank() == 2) return x;
  Ints order = {0};
  for (int i = 2; i < x.rank(); ++i) order.push_back(i);
  order.push_back(1);
  const int64_t classes = x.shape()[1];
  return reshape(permute(x, order), {classes == 0 ? 0 : numel(x.shape()) / classes, classes});
}
// One number per class; where any_shape, as torch takes it for images, in whatever shape.
Value class_weight(const Value& x, const Value& weight, bool any_shape, const char* where) {
  if (!weight.defined()) return weight;
  const Shape classes = {x.shape()[x.rank() == 1 ? 0 : 1]};
  SLUICE_CHECK_KIND(kRuntime, weight.shape() == classes || (any_shape && numel(weight.shape()) == classes[0]),
                    "{}: weight tensor should be defined either for all {} classes or no classes but got weight tensor "
                    "of shape: {}",
                    where, classes[0], weight.shape().str());
  return weight.rank() == 1 ? weight : reshape(weight, classes.vec());
}
// Class indices as lookups take them.
Value class_indices(const Value& target) {
  return target.dtype() == DType::kUInt8 ? cast(target, DType::kInt64) : target;
}
// As torch: the class of one sample without a batch dim may have one.
Value without_batch(const Value& x, const Value& target) {
  return x.rank() == 1 && target.shape() == Shape({1}) ? reshape(target, {}) : target;
}
void check_target_shape(const Value& x, const Value& target, const char* where) {
  Shape expected = x.shape();
  if (x.rank() >= 1) expected.erase(x.rank() == 1 ? 0 : 1);
  SLUICE_CHECK(x.rank() >= 1 && target.shape() == expected,
               "{}: target does not fit: input is {}, target is {}; it must be {}", where, x.shape().str(),
               target.shape().str(), expected.str());
}

}  // namespace

Value reduce_loss(const Value& loss, const std::string& reduction, const char* where) {
  check_reduction(reduction, where);
  if (reduction == "none") return loss;
  return reduction == "sum" ? sum(loss) : mean(loss);
}

Value written_as(const Value& into, const Value& y, const char* where) {
  SLUICE_CHECK_KIND(kRuntime, y.shape() == into.shape(),
                    "{}: output with shape {} doesn't match the broadcast shape {}; they must be equal", where,
                    into.shape().str(), y.shape().str());
  return result_in(into.dtype(), y, where);
}

std::string reduction_of(const std::optional<bool>& size_average, const std::optional<bool>& reduce,
                         const std::string& reduction) {
  if (!size_average && !reduce) return reduction;
  if (!reduce.value_or(true)) return "none";
  return size_average.value_or(true) ? "mean" : "sum";
}

Value cross_entropy(const Value& logits, const Value& given, const CrossEntropyOptions& o) {
  const Value target = is_floating(given.dtype()) ? given : without_batch(logits, given);
  if (is_floating(target.dtype())) {  // class probabilities
    check_reduction(o.reduction, "cross_entropy");
    SLUICE_CHECK(
        target.shape() == logits.shape(),
        "cross_entropy: target does not fit: logits are {}, target is {}; probabilities must be shaped as the logits",
        logits.shape().str(), target.shape().str());
    SLUICE_CHECK_KIND(kRuntime, o.label_smoothing >= 0 && o.label_smoothing <= 1,
                      "cross_entropy: label_smoothing must be between 0.0 and 1.0. Got: {}", o.label_smoothing);
    const int dim = logits.rank() == 1 ? 0 : 1;
    const double classes = static_cast<double>(logits.shape()[dim]);
    const Value t =
        o.label_smoothing > 0 ? add(mul(target, 1 - o.label_smoothing), o.label_smoothing / classes) : target;
    Value terms = mul(t, log_softmax(logits, dim));
    const Value weight = class_weight(logits, o.weight, false, "cross_entropy");
    if (weight.defined()) terms = mul(terms, logits.rank() == 1 ? weight : per_channel(weight, logits.rank()));
    const Value loss = neg(sum(terms, Ints{dim}));
    if (o.reduction != "mean") return reduce_loss(loss, o.reduction, "cross_entropy");
    return div(sum(loss), static_cast<double>(std::max<int64_t>(1, numel(loss.shape()))));
  }
  check_target_shape(logits, target, "cross_entropy");
  const Value weight = class_weight(logits, o.weight, logits.rank() > 2, "cross_entropy");
  const Value loss =
      call1(cross_entropy_def, {classes_last(logits), reshape(class_indices(target), {numel(target.shape())}), weight},
            {o.ignore_index, o.label_smoothing, o.reduction});
  return o.reduction == "none" ? reshape(loss, target.shape().vec()) : loss;
}

Value nll_loss(const Value& log_probs, const Value& given, const CrossEntropyOptions& o) {
  const Value target = without_batch(log_probs, given);
  check_reduction(o.reduction, "nll_loss");
  check_target_shape(log_probs, target, "nll_loss");
  const Value weight = class_weight(log_probs, o.weight, log_probs.rank() > 2, "nll_loss");
  const Value loss = nll(classes_last(log_probs), reshape(class_indices(target), {numel(target.shape())}), weight,
                         {o.ignore_index, 0, o.reduction});
  return o.reduction == "none" ? reshape(loss, target.shape().vec()) : loss;
}

Value mse_loss(const Value& input, const Value& target, const std::string& reduction) {
  const auto [x, t] = promoted(input, target);
  const Value loss = is_floating(x.dtype()) ? squared_difference(x, t) : square(sub(x, t));
  return reduce_loss(loss, reduction, "mse_loss");
}

Value l1_loss(const Value& input, const Value& target, const std::string& reduction) {
  return reduce_loss(abs(sub(input, target)), reduction, "l1_loss");
}

Value smooth_l1_loss(const Value& input, const Value& target, double beta, const std::string& reduction) {
  SLUICE_CHECK(beta >= 0, "smooth_l1_loss: beta is negative: {}; it must be at least 0", beta);
  if (beta == 0) return l1_loss(input, target, reduction);
  const auto [x, t] = promoted(input, target);
  return reduce_loss(huber(x, t, beta, 0.5 / beta, 1), reduction, "smooth_l1_loss");
}

Value huber_loss(const Value& input, const Value& target, double delta, const std::string& reduction) {
  SLUICE_CHECK(delta > 0, "huber_loss: delta is not positive: {}; it must be above 0", delta);
  const auto [x, t] = promoted(input, target);
  const Value loss = huber(x, t, delta, 0.5, delta);
  // As torch, and unlike other losses, in the input's dtype.
  return reduce_loss(result_in(input.dtype(), loss, "huber_loss"), reduction, "huber_loss");
}

Value binary_cross_entropy(const Value& input, const Value& target, const BceOptions& o) {
  Value loss = call1(binary_cross_entropy_def, {input, target});
  if (o.weight.defined()) loss = written_as(loss, mul(loss, o.weight), "binary_cross_entropy");
  return reduce_loss(loss, o.reduction, "binary_cross_entropy");
}

Value binary_cross_entropy_with_logits(const Value& input, const Value& target, const BceOptions& o) {
  const char* const where = "binary_cross_entropy_with_logits";
  Value yes = neg(logsigmoid(input));  // -log(sigmoid(x)); -log(1 - sigmoid(x)) is x more
  if (o.pos_weight.defined()) yes = written_as(yes, mul(add(mul(sub(o.pos_weight, 1.0), target), 1.0), yes), where);
  const Value no = sub(1, target);  // what torch's next steps write into
  Value loss = written_as(no, add(written_as(no, mul(no, input), where), yes), where);
  if (o.weight.defined()) loss = written_as(loss, mul(loss, o.weight), where);
  return reduce_loss(loss, o.reduction, where);
}

std::span<const OpDef* const> losses_ops() {
  static const OpDef* const defs[] = {&cross_entropy_def, &cross_entropy_backward_def, &binary_cross_entropy_def};
  return defs;
}

}  // namespace sluice::ops
