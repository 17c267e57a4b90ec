#pragma once
// Convolutions by a node's attributes.
#include "onnx/call.h"

namespace sluice::onnx {

Value convolved(const Call& call, Value x, const Value& weight, const Value& bias);

}  // namespace sluice::onnx
