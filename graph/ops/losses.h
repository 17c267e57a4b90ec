#pragma once
// Losses, as in torch.nn.functional. reduction: "mean", "sum" or "none".
#include <optional>
#include <span>
#include <string>

#include "graph/op_def.h"
#include "graph/value.h"

namespace sluice::ops {

// The loss, its mean or its sum. Throws kValue for another reduction.
Value reduce_loss(const Value& loss, const std::string& reduction, const char* where);
// `y` as torch writes it where `into` lies: of its shape, which y must have, and in its dtype. Throws kRuntime.
Value written_as(const Value& into, const Value& y, const char* where);
// Torch's older way to say "sum", "none" and "mean"; `reduction` where neither is given.
std::string reduction_of(const std::optional<bool>& size_average, const std::optional<bool>& reduce,
                         const std::string& reduction);

struct CrossEntropyOptions {
  Value weight;  // (C,), optional
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  std::string reduction = "mean";
};
// logits (C,), (N, C) or (N, C, d...); target int64 class indices without C, or probabilities shaped as logits.
Value cross_entropy(const Value& logits, const Value& target, const CrossEntropyOptions& options = {});
// The same from log-probabilities; label_smoothing is not used.
Value nll_loss(const Value& log_probs, const Value& target, const CrossEntropyOptions& options = {});

Value mse_loss(const Value& input, const Value& target, const std::string& reduction = "mean");
Value l1_loss(const Value& input, const Value& target, const std::string& reduction = "mean");
Value smooth_l1_loss(const Value& input, const Value& target, double beta = 1.0, const std::string& reduction = "mean");
Value huber_loss(const Value& input, const Value& target, double delta = 1.0, const std::string& reduction = "mean");

struct BceOptions {
  Value weight, pos_weight;  // optional; pos_weight with logits only
  std::string reduction = "mean";
};
Value binary_cross_entropy(const Value& input, const Value& target, const BceOptions& options = {});
Value binary_cross_entropy_with_logits(const Value& input, const Value& target, const BceOptions& options = {});

std::span<const OpDef* const> losses_ops();

}  // namespace sluice::ops
