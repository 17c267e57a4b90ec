// What networks are made of, under torch.nn.functional's names: one entry each.
#include <array>

#include "both.h"
#include "graph/ops/activation.h"
#include "graph/ops/convolution.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/embedding.h"
#include "graph/ops/losses.h"
#include "graph/ops/matmul.h"
#include "graph/ops/normalization.h"
#include "graph/ops/optimizer_updates.h"
#include "graph/ops/pooling.h"
#include "graph/ops/random.h"
#include "tensor/random.h"

namespace sluice::python {
namespace {

void bind_activations(nb::module_& fn) {
  const auto x = nb::arg("input");
  fn.def("gelu", &ops::gelu, Release(), x, nb::arg("approximate") = "none");
  fn.def("silu", &ops::silu, Release(), x);
  fn.def("mish", &ops::mish, Release(), x);
  fn.def("leaky_relu", &ops::leaky_relu, Release(), x, nb::arg("negative_slope") = 0.01);
  fn.def("elu", &ops::elu, Release(), x, nb::arg("alpha") = 1.0);
  fn.def("softplus", &ops::softplus, Release(), x, nb::arg("beta") = 1.0, nb::arg("threshold") = 20.0);
  fn.def("hardtanh", &ops::hardtanh, Release(), x, nb::arg("min_val") = -1.0, nb::arg("max_val") = 1.0);
  fn.def("relu6", &ops::relu6, Release(), x);
  fn.def("hardsigmoid", &ops::hardsigmoid, Release(), x);
  fn.def("hardswish", &ops::hardswish, Release(), x);
  fn.def("logsigmoid", &ops::logsigmoid, Release(), x);
}

void bind_layers(nb::module_& fn) {
  const auto x = nb::arg("input"), w = nb::arg("weight");
  const auto no_bias = nb::arg("bias") = nb::none();
  fn.def(
      "linear", [](const Value& x, const Value& w, const OptionalValue& b) { return ops::linear(x, w, b); }, Release(),
      x, w, no_bias);
  fn.def(
      "conv",
      [](const Value& x, const Value& w, const OptionalValue& b, const Ints& stride, const Ints& padding,
         const Ints& dilation, int64_t groups) {
        return ops::conv(x, w, b, {stride, padding, dilation, groups});
      },
      Release(), x, w, no_bias, nb::arg("stride"), nb::arg("padding"), nb::arg("dilation"), nb::arg("groups"));
  fn.def(
      "conv_transpose",
      [](const Value& x, const Value& w, const OptionalValue& b, const Ints& stride, const Ints& padding,
         const Ints& output_padding, int64_t groups, const Ints& dilation) {
        return ops::conv_transpose(x, w, b, {stride, padding, output_padding, dilation, groups});
      },
      Release(), x, w, no_bias, nb::arg("stride"), nb::arg("padding"), nb::arg("output_padding"), nb::arg("groups"),
      nb::arg("dilation"));
  fn.def(
      "batch_norm",
      [](const Value& x, const OptionalValue& mean, const OptionalValue& var, const OptionalValue& w,
         const OptionalValue& b, bool training, double momentum, double eps) {
        const ops::BatchNormResult r = ops::batch_norm(x, {w, b, mean, var, training, momentum, eps});
        return std::array<Value, 3>{r.y, r.running_mean, r.running_var};
      },
      Release(), x, nb::arg("running_mean").none(), nb::arg("running_var").none(), nb::arg("weight").none(),
      nb::arg("bias").none(), nb::arg("training"), nb::arg("momentum"), nb::arg("eps"),
      "(y, new running mean, new running variance)");
  fn.def(
      "layer_norm",
      [](const Value& x, const Ints& shape, const OptionalValue& w, const OptionalValue& b, double eps) {
        return ops::layer_norm(x, shape, w, b, eps);
      },
      Release(), x, nb::arg("normalized_shape"), nb::arg("weight") = nb::none(), no_bias, nb::arg("eps") = 1e-5);
  fn.def(
      "rms_norm",
      [](const Value& x, const Ints& shape, const OptionalValue& w, double eps) {
        return ops::rms_norm(x, shape, w, eps);
      },
      Release(), x, nb::arg("normalized_shape"), nb::arg("weight") = nb::none(), nb::arg("eps") = 1e-6);
  fn.def(
      "group_norm",
      [](const Value& x, int64_t groups, const OptionalValue& w, const OptionalValue& b, double eps) {
        return ops::group_norm(x, groups, w, b, eps);
      },
      Release(), x, nb::arg("num_groups"), nb::arg("weight") = nb::none(), no_bias, nb::arg("eps") = 1e-5);
  fn.def(
      "embedding",
      [](const Value& index, const Value& w, std::optional<int64_t> padding_idx) {
        const int64_t row = padding_idx.value_or(-1);
        return ops::embedding(w, index, padding_idx && row < 0 ? row + w.shape()[0] : row);
      },
      Release(), x, w, nb::arg("padding_idx") = nb::none());
  fn.def(
      "scaled_dot_product_attention",
      [](const Value& q, const Value& k, const Value& v, const OptionalValue& mask, double dropout_p, bool is_causal,
         std::optional<double> scale, Generator& generator) {
        ops::AttentionOptions options{mask, is_causal, scale};
        if (dropout_p > 0) {
          const Generator::Draw draw = generator.next();
          options.dropout = [=](const Value& weights) {
            return dropout_p == 1 ? ops::mul(weights, 0.0) : ops::dropout(draw.state, weights, dropout_p, draw.salt);
          };
        }
        GilRelease release;
        return ops::scaled_dot_product_attention(q, k, v, options);
      },
      nb::arg("query"), nb::arg("key"), nb::arg("value"), nb::arg("attn_mask").none(), nb::arg("dropout_p"),
      nb::arg("is_causal"), nb::arg("scale").none(), nb::arg("generator"));
}

void bind_pooling(nb::module_& fn) {
  const auto x = nb::arg("input");
  fn.def(
      "max_pool",
      [](const Value& x, const Ints& kernel, const Ints& stride, const Ints& padding, const Ints& dilation,
         bool ceil_mode) {
        ops::MaxPoolOptions options;
        options.kernel_size = kernel, options.stride = stride, options.padding = padding, options.ceil_mode = ceil_mode;
        options.dilation = dilation;
        return ops::max_pool_with_indices(x, options);
      },
      Release(), x, nb::arg("kernel_size"), nb::arg("stride"), nb::arg("padding"), nb::arg("dilation"),
      nb::arg("ceil_mode"));
  fn.def(
      "avg_pool",
      [](const Value& x, const Ints& kernel, const Ints& stride, const Ints& padding, bool ceil_mode,
         bool count_include_pad, int64_t divisor_override) {
        ops::AvgPoolOptions options;
        options.kernel_size = kernel, options.stride = stride, options.padding = padding, options.ceil_mode = ceil_mode;
        options.count_include_pad = count_include_pad, options.divisor_override = divisor_override;
        return ops::avg_pool(x, options);
      },
      Release(), x, nb::arg("kernel_size"), nb::arg("stride"), nb::arg("padding"), nb::arg("ceil_mode"),
      nb::arg("count_include_pad"), nb::arg("divisor_override") = 0);
  fn.def("adaptive_avg_pool", &ops::adaptive_avg_pool, Release(), x, nb::arg("output_size"));
  fn.def("adaptive_max_pool", &ops::adaptive_max_pool, Release(), x, nb::arg("output_size"));
}

void bind_losses(nb::module_& fn) {
  const auto x = nb::arg("input"), target = nb::arg("target");
  const auto weight = nb::arg("weight") = nb::none();
  const auto reduction = nb::arg("reduction") = "mean";
  const auto ignore_index = nb::arg("ignore_index") = -100;
  fn.def("mse_loss", &ops::mse_loss, Release(), x, target, reduction);
  fn.def("l1_loss", &ops::l1_loss, Release(), x, target, reduction);
  fn.def("smooth_l1_loss", &ops::smooth_l1_loss, Release(), x, target, nb::arg("beta") = 1.0, reduction);
  fn.def("huber_loss", &ops::huber_loss, Release(), x, target, nb::arg("delta") = 1.0, reduction);
  fn.def(
      "cross_entropy",
      [](const Value& x, const Value& t, const OptionalValue& w, int64_t ignore, const std::string& r,
         double smoothing) {
        return ops::cross_entropy(x, t, {w, ignore, smoothing, r});
      },
      Release(), x, target, weight, ignore_index, reduction, nb::arg("label_smoothing") = 0.0);
  fn.def(
      "nll_loss",
      [](const Value& x, const Value& t, const OptionalValue& w, int64_t ignore, const std::string& r) {
        return ops::nll_loss(x, t, {w, ignore, 0.0, r});
      },
      Release(), x, target, weight, ignore_index, reduction);
  fn.def(
      "binary_cross_entropy",
      [](const Value& x, const Value& t, const OptionalValue& w, const std::string& r) {
        return ops::binary_cross_entropy(x, t, {w, {}, r});
      },
      Release(), x, target, weight, reduction);
  fn.def(
      "binary_cross_entropy_with_logits",
      [](const Value& x, const Value& t, const OptionalValue& w, const std::string& r, const OptionalValue& p) {
        return ops::binary_cross_entropy_with_logits(x, t, {w, p, r});
      },
      Release(), x, target, weight, reduction, nb::arg("pos_weight") = nb::none());
}

void bind_updates(nb::module_& fn) {
  fn.def(
      "sgd_update",
      [](const Value& param, const Value& grad, const Value& lr, const OptionalValue& buffer, const OptionalValue& step,
         double momentum, double dampening, double weight_decay, bool nesterov, bool maximize) {
        return ops::sgd_update({param, grad, lr, buffer, step},
                               {momentum, dampening, weight_decay, nesterov, maximize});
      },
      Release(), nb::arg("param"), nb::arg("grad"), nb::arg("lr"), nb::arg("momentum_buffer").none(),
      nb::arg("step").none(), nb::arg("momentum"), nb::arg("dampening"), nb::arg("weight_decay"), nb::arg("nesterov"),
      nb::arg("maximize"));
  fn.def(
      "adam_update",
      [](const Value& param, const Value& grad, const Value& exp_avg, const Value& exp_avg_sq, const Value& step,
         const Value& lr, const OptionalValue& max_exp_avg_sq, std::pair<double, double> betas, double eps,
         double weight_decay, bool decoupled, bool maximize) {
        return ops::adam_update({param, grad, exp_avg, exp_avg_sq, step, lr, max_exp_avg_sq},
                                {betas.first, betas.second, eps, weight_decay, decoupled, maximize});
      },
      Release(), nb::arg("param"), nb::arg("grad"), nb::arg("exp_avg"), nb::arg("exp_avg_sq"), nb::arg("step"),
      nb::arg("lr"), nb::arg("max_exp_avg_sq").none(), nb::arg("betas"), nb::arg("eps"), nb::arg("weight_decay"),
      nb::arg("decoupled"), nb::arg("maximize"));
}

}  // namespace

void bind_networks(nb::module_& fn) {
  bind_activations(fn);
  bind_layers(fn);
  bind_pooling(fn);
  bind_losses(fn);
  bind_updates(fn);
}

}  // namespace sluice::python
