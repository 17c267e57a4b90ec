#include "tools/sluice_run/npy.h"

#include <cstring>

#include "base/files/npy.h"

namespace sluice::run {

// The public dtypes are those of base/dtype.h, in its order.
api::Tensor read_npy(const std::string& path) {
  const NpyArray array = sluice::read_npy(path);
  api::Tensor tensor(static_cast<api::DType>(array.type.dtype), array.type.shape.vec());
  if (!array.data.empty()) std::memcpy(tensor.raw(), array.data.data(), array.data.size());
  return tensor;
}

void write_npy(const std::string& path, const api::Tensor& tensor) {
  sluice::write_npy(path, {static_cast<DType>(tensor.dtype()), Shape(tensor.shape())}, tensor.raw());
}

}  // namespace sluice::run
