#pragma once
// The facts about a tensor that are known without its data.
#include <string>

#include "base/dtype.h"
#include "base/shape.h"

namespace sluice {

// Logical type: what graphs reason about.
struct TensorType {
  DType dtype = DType::kFloat32;
  Shape shape;
  std::string str() const { return std::string(dtype_name(dtype)) + shape.str(); }
  bool operator==(const TensorType&) const = default;
};

// Physical type: what kernels and plans reason about. Strides are in elements.
struct TensorSpec {
  DType dtype = DType::kFloat32;
  Shape shape;
  Strides strides;
  static TensorSpec contiguous(const TensorType& t) { return {t.dtype, t.shape, contiguous_strides(t.shape)}; }
  // Bytes from the first to the last element addressed.
  uint64_t extent_bytes() const {
    return checked_mul(static_cast<uint64_t>(storage_extent(shape, strides)), dtype_size(dtype));
  }
  bool operator==(const TensorSpec&) const = default;
};

}  // namespace sluice
