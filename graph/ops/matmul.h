#pragma once
// Matrix products: matmul, linear.
#include <span>
#include <string>

#include "graph/op_def.h"
#include "graph/operand.h"
#include "graph/value.h"

namespace sluice::ops {

// torch.matmul: operands of rank >= 1, batch dims broadcast. A transposed operand has its last two dims exchanged first
// (rank >= 2 then).
Value matmul(const Value& a, const Value& b, bool transpose_a = false, bool transpose_b = false);
// torch.nn.functional.linear with a fused activation: act(x weight^T + bias). x is (..., in), weight (out, in) or
// (in,), bias (out,). activation: "none", "relu", "gelu", "gelu_tanh", "tanh", "sigmoid", "silu".
Value linear(const Value& x, const Value& weight, const Value& bias = {}, const std::string& activation = "none");

// factor * x in x's dtype, as alpha and beta of torch's products are taken: of integers the factor's whole part.
Value scaled_by(const Value& x, const Operand& factor);
// beta * input + alpha * product, in the product's shape; with beta 0 the input is not read.
Value add_scaled(const char* name, const Value& input, const Value& product, const Operand& beta = 1,
                 const Operand& alpha = 1);
// The same of a product of a and b. As torch: of no elements no factor is looked at, and where nothing is added to it,
// beta multiplies input as in input.mul_(beta).
Value add_product(const char* name, const Value& input, const Value& a, const Value& b, const Value& product,
                  const Operand& beta, const Operand& alpha);

const OpDef& matmul_op();
std::span<const OpDef* const> matmul_ops();

}  // namespace sluice::ops
