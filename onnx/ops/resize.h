#pragma once
// Resize: images at other sizes.
#include "onnx/call.h"

namespace sluice::onnx {

Value resized(const Call& call);
Value upsampled(const Call& call);  // its form before opset 10

}  // namespace sluice::onnx
