#pragma once
// Tensors and pointwise operations of cuDNN's graphs.
#include <optional>
#include <vector>

#include "base/dtype.h"
#include "kernels/cuda/cudnn.h"

namespace sluice::cuda {

// Operands that lie as the buffers of our plans do have another plan than views of them that begin anywhere: engines
// load 16 bytes at once.
inline constexpr int64_t kCudnnAlignment = 16;

std::optional<cudnnDataType_t> cudnn_type(DType dtype);  // nothing for those that kernels here do not ask for

struct CudnnTensor {
  enum class In : uint8_t { kMemory, kNothing, kCall };  // kNothing: between operations; kCall: one number, by value
  int64_t uid = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<int64_t> sizes, strides = {};  // no strides: row-major
  In in = In::kMemory;
  int64_t alignment = kCudnnAlignment;
};
CudnnDescriptor cudnn_tensor(const CudnnMaker& maker, const CudnnTensor& tensor);

// y = mode(x, b, t); null where the mode takes fewer.
struct CudnnPointwise {
  cudnnPointwiseMode_t mode;
  cudnnDataType_t compute;
  const CudnnDescriptor &x, &y;
  const CudnnDescriptor *b = nullptr, *t = nullptr;
  std::optional<int64_t> axis = {};
};
CudnnDescriptor cudnn_pointwise(const CudnnMaker& maker, const CudnnPointwise& pointwise);

}  // namespace sluice::cuda
