#pragma once
// Matrix products: matmul, linear, and attention made of them.
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "graph/op_def.h"
#include "graph/value.h"

namespace sluice::ops {

// torch.matmul: operands of rank >= 1, batch dims broadcast. A transposed operand has its last two dims exchanged first
// (rank >= 2 then).
Value matmul(const Value& a, const Value& b, bool transpose_a = false, bool transpose_b = false);
// torch.nn.functional.linear with a fused activation: act(x weight^T + bias). x is (..., in), weight (out, in) or
// (in,), bias (out,). activation: "none", "relu", "gelu", "gelu_tanh", "tanh", "sigmoid", "silu".
Value linear(const Value& x, const Value& weight, const Value& bias = {}, const std::string& activation = "none");

struct AttentionOptions {
  Value mask;  // bool (true = take part) or added to the scores; broadcastable to (..., L, S)
  bool is_causal = false;
  std::optional<double> scale;  // default 1/sqrt(head dim)
  std::function<Value(const Value& weights)> dropout = nullptr;
};
// torch.nn.functional.scaled_dot_product_attention. q (..., L, E), k (..., S, E), v (..., S, Ev). A row that the mask
// leaves nothing gives zeros.
Value scaled_dot_product_attention(const Value& q, const Value& k, const Value& v,
                                   const AttentionOptions& options = {});

std::span<const OpDef* const> matmul_ops();

}  // namespace sluice::ops
