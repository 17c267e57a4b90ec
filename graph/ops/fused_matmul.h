#pragma once
// A product of matrices with what is added to it, as one op that the compiler makes for devices that have a kernel.
#include <span>

#include "graph/op_def.h"

namespace sluice::ops {

// matmul(a, b) + bias + residual, with matmul's attributes. The residual has the result's type; bias, a row, may be
// absent.
namespace fused_matmul_input {
enum { kLeft, kRight, kResidual, kBias, kCount };
}
const OpDef& fused_matmul_op();

std::span<const OpDef* const> fused_matmul_ops();

}  // namespace sluice::ops
