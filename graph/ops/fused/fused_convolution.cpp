#include "graph/ops/fused_convolution.h"

#include "graph/executor.h"
#include "graph/ops/activation.h"
#include "graph/ops/common.h"
#include "graph/ops/convolution.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/norm_common.h"

namespace sluice::ops {
namespace {

using namespace fused_conv_input;

Attrs conv_attrs(const Attrs& attrs) { return {attrs.begin() + fused_conv_attr::kConv, attrs.end()}; }

std::vector<TensorType> infer_fused_conv(Types in, Present present, const Attrs& attrs) {
  std::vector<TensorType> of_conv(in.begin(), in.begin() + kMean);
  if (present[kBias] && in[kBias].dtype == stat_dtype(in[kX].dtype)) of_conv[kBias].dtype = in[kX].dtype;
  const std::vector<TensorType> y = infer_types(conv_op(), of_conv, present.first(kMean), conv_attrs(attrs));
  const bool norm = present[kMean];
  SLUICE_CHECK_KIND(kRuntime, present[kVar] == norm && (norm || (!present[kScale] && !present[kShift])),
                    "mean and var: one of them is absent; scale and shift need both");
  if (norm) {
    std::vector<TensorType> of_norm = {y[0]};
    of_norm.insert(of_norm.end(), in.begin() + kMean, in.begin() + kResidual);
    const bool has[] = {true, true, true, present[kScale], present[kShift]};
    infer_types(batch_norm_infer_def, of_norm, has, {attrs[fused_conv_attr::kEps]});
  }
  SLUICE_CHECK_KIND(kRuntime, !present[kResidual] || in[kResidual] == y[0],
                    "residual does not fit: {}; the convolution's output is {}", in[kResidual].str(), y[0].str());
  const std::string& activation = attr<std::string>(attrs, fused_conv_attr::kActivation);
  SLUICE_CHECK(activation == "none" || activation == "relu", "activation: got \"{}\"; must be none or relu",
               activation);
  return y;
}

std::vector<Value> decompose_fused_conv(std::span<const Value> in, const Attrs& attrs) {
  const auto operand = [&](size_t i) { return input_or_none(in, i); };
  Value bias = operand(kBias);
  if (bias.defined()) bias = cast(bias, in[kX].dtype());
  Value y = call1(conv_op(), {in[kX], in[kWeight], bias}, conv_attrs(attrs));
  if (operand(kMean).defined())
    y = call1(batch_norm_infer_def, {y, in[kMean], in[kVar], operand(kScale), operand(kShift)},
              {attrs[fused_conv_attr::kEps]});
  if (operand(kResidual).defined()) y = add(y, in[kResidual]);
  return {attr<std::string>(attrs, fused_conv_attr::kActivation) == "relu" ? relu(y) : y};
}

std::vector<SbpRow> sbp_fused_conv(Types in, const Attrs&) {
  const Sbp whole = Sbp::broadcast(), part = Sbp::split(0);
  SbpRow batch{std::vector<Sbp>(in.size(), whole), {part}};
  batch.inputs[kX] = part;
  if (in.size() > kResidual && in[kResidual].shape.rank() > 0) batch.inputs[kResidual] = part;
  return {batch, {std::vector<Sbp>(in.size(), whole), {whole}}};
}

const SampleInput kVar4{.shape = {4}, .low = 0.5, .high = 1.5};
const Attr kNone = std::string("none"), kRelu = std::string("relu");

const OpDef fused_conv_def{
    .name = "fused_conv",
    .doc =
        "conv, then batch_norm_infer where there is a mean, then plus residual, then the activation (none, relu). "
        "Beside 16-bit x the bias may be float32. What compiling makes of these.",
    .inputs = {"x", "weight", "bias?", "mean?", "var?", "scale?", "shift?", "residual?"},
    .params = {{.name = "eps", .default_value = 1e-5},
               {.name = "activation", .default_value = std::string("none")},
               {.name = "stride", .default_value = Ints{}, .required = true},
               {.name = "padding", .default_value = Ints{}, .required = true},
               {.name = "dilation", .default_value = Ints{}, .required = true},
               {.name = "groups", .default_value = int64_t{1}}},
    .infer = infer_fused_conv,
    .decompose = decompose_fused_conv,
    .sbp = sbp_fused_conv,
    .cost =
        [](Types in, Types out, const Attrs& attrs) {
          Cost cost = cost_of(conv_op(), in.first(kMean), out, conv_attrs(attrs));
          cost.bytes = operand_bytes(in, out);
          return cost;
        },
    .precision = OpDef::Precision::kConv,
    .samples = {
        {{{{2, 3, 6, 5}}, {{4, 3, 3, 3}}, {{4}}, {{4}}, kVar4, {{4}}, {{4}}, {{2, 4, 6, 5}}},
         {1e-5, kRelu, Ints{1, 1}, Ints{1, 1}, Ints{1, 1}, int64_t{1}}},
        {{{{2, 3, 6, 5}}, {{4, 3, 3, 3}}, kAbsent, {{4}}, kVar4, {{4}}, kAbsent, kAbsent},
         {1e-3, kRelu, Ints{2, 1}, Ints{0, 1}, Ints{1, 1}, int64_t{1}}},
        {{{{2, 4, 7, 7}}, {{4, 2, 3, 2}}, {{4}}, kAbsent, kAbsent, kAbsent, kAbsent, {{2, 4, 3, 7}}},
         {1e-5, kNone, Ints{2, 1}, Ints{0, 1}, Ints{1, 2}, int64_t{2}}},
        {{{{2, 3, 9}}, {{4, 3, 3}}, {{4}}, kAbsent, kAbsent, kAbsent, kAbsent, kAbsent},
         {1e-5, kRelu, Ints{2}, Ints{1}, Ints{2}, int64_t{1}}},
        {{{{1, 2, 4, 4, 3}}, {{4, 2, 2, 2, 2}}, kAbsent, {{4}}, kVar4, kAbsent, kAbsent, {{1, 4, 3, 3, 4}}},
         {1e-5, kRelu, Ints{1, 2, 1}, Ints{0, 1, 1}, Ints{1, 1, 1}, int64_t{1}}},
        {{{{0, 3, 4, 4}}, {{4, 3, 1, 1}}, {{4}}, {{4}}, kVar4, {{4}}, {{4}}, {{0, 4, 4, 4}}},
         {1e-5, kRelu, Ints{1, 1}, Ints{0, 0}, Ints{1, 1}, int64_t{1}}},
    }};

}  // namespace

const OpDef& fused_conv_op() { return fused_conv_def; }
std::span<const OpDef* const> fused_convolution_ops() {
  static const OpDef* const ops[] = {&fused_conv_def};
  return ops;
}

}  // namespace sluice::ops
