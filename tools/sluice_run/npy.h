#pragma once
// NumPy's .npy files as tensors of the public API.
#include <string>

#include "include/sluice/tensor.h"

namespace sluice::run {

// Throws kIo when the file cannot be read, kValue when it is not well formed, kUnsupported for what no tensor holds:
// column-major order, big-endian numbers, objects and strings.
api::Tensor read_npy(const std::string& path);
// Throws kIo. bfloat16, which NumPy does not have, is written as two bytes per element ("<V2"), as ml_dtypes does.
void write_npy(const std::string& path, const api::Tensor& tensor);

}  // namespace sluice::run
