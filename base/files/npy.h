#pragma once
// NumPy's .npy files.
#include <cstddef>
#include <string>
#include <vector>

#include "base/shape.h"
#include "base/tensor_spec.h"

namespace sluice {

struct NpyArray {
  TensorType type;
  std::vector<std::byte> data;  // contiguous
};

// Throws kIo when the file cannot be read, kValue when it is not well formed, kUnsupported for what no tensor holds:
// column-major order, big-endian numbers, objects and strings.
NpyArray read_npy(const std::string& path);
// `data`: contiguous. Throws kIo. bfloat16, which NumPy does not have, is written as two bytes per element ("<V2"), as
// ml_dtypes does.
void write_npy(const std::string& path, const TensorType& type, const void* data);

}  // namespace sluice
