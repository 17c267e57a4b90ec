#pragma once
// Activation functions, as in torch.nn.functional.
#include <optional>
#include <span>
#include <string>

#include "graph/op_def.h"
#include "graph/operand.h"

namespace sluice::ops {

Value relu(const Value& x);
Value sigmoid(const Value& x);
Value silu(const Value& x);
Value prelu(const Value& x, const Value& weight);                     // x where positive, else weight * x, broadcast
Value gelu(const Value& x, const std::string& approximate = "none");  // "none" or "tanh"
// Gradients as ops of their own, since as chains of simpler ops they cost several passes over memory.
Value relu_backward(const Value& grad, const Value& result);     // grad where result > 0, else 0
Value sigmoid_backward(const Value& grad, const Value& result);  // grad * result * (1 - result)
Value tanh_backward(const Value& grad, const Value& result);     // grad * (1 - result^2)
Value gelu_backward(const Value& grad, const Value& x, const std::string& approximate);
Value silu_backward(const Value& grad, const Value& x);

Value leaky_relu(const Value& x, double negative_slope = 0.01);
// x where positive, else alpha * (exp(x * steepness) - 1).
Value elu(const Value& x, double alpha = 1.0, double steepness = 1.0);
Value softplus(const Value& x, double beta = 1.0, double threshold = 20.0);
Value mish(const Value& x);
// Either bound may be absent, not both.
Value clamp(const Value& x, const std::optional<Operand>& min, const std::optional<Operand>& max);
Value hardtanh(const Value& x, double min_val = -1.0, double max_val = 1.0);
Value relu6(const Value& x);
Value hardsigmoid(const Value& x);
Value hardswish(const Value& x);
Value selu(const Value& x);
Value logsigmoid(const Value& x);

std::span<const OpDef* const> activation_ops();

}  // namespace sluice::ops
