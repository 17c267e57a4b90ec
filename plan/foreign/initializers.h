#pragma once
// Weights as a part of a model of ONNX.
//
// Messages of protobuf that are written one behind the other are one message: lists of the second are added to those of
// the first. So weights can be added to a model where nothing is known of ONNX but the numbers of a few fields.
#include <string>
#include <vector>

#include "base/tensor_spec.h"

namespace sluice::plan {

// Whether ONNX has tensors of this dtype.
bool has_onnx_type(DType dtype);
// Writes behind a model whose nodes read i0, i1, ...: an initializer for each input that is not null in
// `constants`. REQUIRES: these are contiguous, and has_onnx_type() of each.
std::string onnx_initializers(const std::vector<TensorType>& inputs, const std::vector<const void*>& constants);

}  // namespace sluice::plan
