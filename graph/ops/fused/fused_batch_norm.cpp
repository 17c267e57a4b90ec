#include "graph/ops/fused_batch_norm.h"

#include "graph/executor.h"
#include "graph/ops/activation.h"
#include "graph/ops/common.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/norm_common.h"

namespace sluice::ops {
namespace {

namespace fwd = fused_batch_norm_input;
namespace bwd = fused_batch_norm_backward_input;
namespace at = fused_batch_norm_attr;

std::vector<TensorType> infer_forward(Types in, Present present, const Attrs& attrs) {
  std::vector<TensorType> types =
      infer_types(batch_norm_train_def, in.first(fwd::kResidual), present.first(fwd::kResidual), {attrs[at::kEps]});
  SLUICE_CHECK_KIND(kRuntime, !present[fwd::kResidual] || in[fwd::kResidual] == in[0],
                    "residual does not fit: {}; x is {}", in[fwd::kResidual].str(), in[0].str());
  SLUICE_CHECK_KIND(kRuntime, present[fwd::kRunningMean] == present[fwd::kRunningVar],
                    "running_mean and running_var: one of them is absent; both must be given, or neither");
  const std::string& activation = attr<std::string>(attrs, at::kActivation);
  SLUICE_CHECK(activation == "none" || activation == "relu", "activation: got \"{}\"; must be none or relu",
               activation);
  for (int i = fwd::kRunningMean; i < fwd::kCount && present[i]; ++i) {
    SLUICE_CHECK_KIND(kRuntime, in[i] == types[1], "running statistics do not fit: {}; the batch's are {}", in[i].str(),
                      types[1].str());
    types.push_back(types[1]);
  }
  return types;
}

std::vector<Value> decompose_forward(std::span<const Value> in, const Attrs& attrs) {
  const auto operand = [&](size_t i) { return input_or_none(in, i); };
  const Value inputs[] = {in[fwd::kX], operand(fwd::kWeight), operand(fwd::kBias)};
  std::vector<Value> out = call(batch_norm_train_def, inputs, {attrs[at::kEps]});
  if (operand(fwd::kResidual).defined()) out[0] = add(out[0], in[fwd::kResidual]);
  if (attr<std::string>(attrs, at::kActivation) == "relu") out[0] = relu(out[0]);
  if (!operand(fwd::kRunningMean).defined()) return out;
  const auto moved = [&](const Value& running, const Value& batch) {
    return add(mul(running, attr<double>(attrs, at::kKept)), mul(batch, attr<double>(attrs, at::kTaken)));
  };
  out.push_back(moved(in[fwd::kRunningMean], out[1]));
  out.push_back(moved(in[fwd::kRunningVar], mul(out[2], attr<double>(attrs, at::kCorrection))));
  return out;
}

std::vector<TensorType> infer_backward(Types in, Present present, const Attrs& attrs) {
  const std::vector<TensorType> of_norm = {in[bwd::kGrad], in[bwd::kX], in[bwd::kMean], in[bwd::kVar],
                                           in[bwd::kWeight]};
  const bool has[] = {true, true, true, true, present[bwd::kWeight]};
  std::vector<TensorType> types = infer_types(batch_norm_backward_def, of_norm, has, {attrs[0]});
  SLUICE_CHECK_KIND(kRuntime, in[bwd::kResult] == in[bwd::kX], "result does not fit: {}; x is {}",
                    in[bwd::kResult].str(), in[bwd::kX].str());
  if (attr<bool>(attrs, 1)) types.push_back(in[bwd::kGrad]);
  return types;
}

std::vector<Value> decompose_backward(std::span<const Value> in, const Attrs& attrs) {
  const Value grad = relu_backward(in[bwd::kGrad], in[bwd::kResult]);
  const Value inputs[] = {grad, in[bwd::kX], in[bwd::kMean], in[bwd::kVar], input_or_none(in, bwd::kWeight)};
  std::vector<Value> out = call(batch_norm_backward_def, inputs, {attrs[0]});
  if (attr<bool>(attrs, 1)) out.push_back(grad);
  return out;
}

// Statistics need the whole batch: only channels may be split.
std::vector<SbpRow> by_channels(Types in, const Shape& x, size_t outputs, bool masked) {
  SbpRow split{{}, std::vector<Sbp>(outputs, Sbp::split(0))};
  for (const TensorType& t : in)
    split.inputs.push_back(t.shape == x ? Sbp::split(1) : t.shape.rank() == 0 ? Sbp::broadcast() : Sbp::split(0));
  split.outputs[0] = Sbp::split(1);
  if (masked) split.outputs.back() = Sbp::split(1);
  return {split, {std::vector<Sbp>(in.size()), std::vector<Sbp>(outputs)}};
}
std::vector<SbpRow> sbp_forward(Types in, const Attrs&) {
  const bool running = in.size() > fwd::kRunningMean && in[fwd::kRunningMean].shape.rank() > 0;
  return by_channels(in, in[0].shape, running ? 5 : 3, false);
}
std::vector<SbpRow> sbp_backward(Types in, const Attrs& attrs) {
  const bool masked = attr<bool>(attrs, 1);
  return by_channels(in, in[bwd::kX].shape, masked ? 4 : 3, masked);
}

const SampleInput kVar3{.shape = {3}, .low = 0.5, .high = 1.5};
const Attr kNone = std::string("none"), kRelu = std::string("relu");

const OpDef forward_def{
    .name = "fused_batch_norm",
    .doc =
        "batch_norm_train, then plus residual, then the activation (none, relu): y, mean, var; and where running "
        "statistics are given, what they become. What compiling makes of these.",
    .inputs = {"x", "weight?", "bias?", "residual?", "running_mean?", "running_var?"},
    .params = {{.name = "eps", .default_value = 1e-5},
               {.name = "activation", .default_value = std::string("none")},
               {.name = "kept", .default_value = 0.9},
               {.name = "taken", .default_value = 0.1},
               {.name = "correction", .default_value = 1.0}},
    .num_outputs = -1,
    .infer = infer_forward,
    .decompose = decompose_forward,
    .sbp = sbp_forward,
    .cost = norm_cost,
    .samples = {
        {{{{4, 3, 2, 5}}, {{3}}, {{3}}, {{4, 3, 2, 5}}, {{3}}, kVar3}, {1e-5, kRelu, 0.9, 0.1, 40.0 / 39}},
        {{{{4, 3, 6}}, kAbsent, kAbsent, kAbsent, {{3}}, kVar3}, {1e-3, kNone, 0.5, 0.5, 1.0}},
        {{{{5, 3}}, {{3}}, {{3}}, {{5, 3}}, kAbsent, kAbsent}, {1e-5, kRelu, 0.9, 0.1, 1.0}},
        {{{{2, 20, 3, 3}}, {{20}}, kAbsent, kAbsent, kAbsent, kAbsent}, {1e-5, kRelu, 0.9, 0.1, 1.0}},
    }};

const OpDef backward_def{
    .name = "fused_batch_norm_backward",
    .doc =
        "batch_norm_backward of a gradient that is 0 where result <= 0, as relu leaves it; with `residual`, that "
        "gradient is the last output.",
    .inputs = {"grad", "x", "mean", "var", "result", "weight?"},
    .params = {{.name = "eps", .default_value = 1e-5}, {.name = "residual", .default_value = false}},
    .num_outputs = -1,
    .infer = infer_backward,
    .decompose = decompose_backward,
    .sbp = sbp_backward,
    .cost = norm_cost,
    .samples = {
        {{{{4, 3, 2, 5}}, {{4, 3, 2, 5}}, {{3}}, kVar3, {{4, 3, 2, 5}}, {{3}}}, {1e-5, true}},
        {{{{5, 3}}, {{5, 3}}, {{3}}, kVar3, {{5, 3}}, kAbsent}, {1e-3, false}},
    }};

}  // namespace

const OpDef& fused_batch_norm_op() { return forward_def; }
const OpDef& fused_batch_norm_backward_op() { return backward_def; }

std::span<const OpDef* const> fused_batch_norm_ops() {
  static const OpDef* const ops[] = {&forward_def, &backward_def};
  return ops;
}

}  // namespace sluice::ops
