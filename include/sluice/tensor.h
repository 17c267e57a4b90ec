#pragma once
// Tensors in host memory, contiguous and row-major, for what goes into and comes out of a session.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dtype.h"
#include "export.h"

namespace sluice::api {

// Copies share memory.
class SLUICE_API Tensor {
 public:
  Tensor() = default;
  // Zeros. Throws kValue on a negative dimension, an overflowing size, or a dtype that is none.
  Tensor(DType dtype, std::vector<int64_t> shape);
  // Shares `data`, which must hold the whole tensor. Throws the same.
  Tensor(DType dtype, std::vector<int64_t> shape, std::shared_ptr<void> data);
  template <class T>
  static Tensor from(const std::vector<T>& values, std::vector<int64_t> shape) {
    return copy_of(dtype_of<T>(), std::move(shape), values.data(), values.size() * sizeof(T));
  }

  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t size() const;  // elements
  size_t bytes() const { return static_cast<size_t>(size()) * dtype_size(dtype_); }
  void* raw() const { return data_.get(); }
  const std::shared_ptr<void>& shared() const { return data_; }  // what copies share
  // Throws kType when T is not the element type.
  template <class T>
  T* data() const {
    check_dtype(dtype_of<T>());
    return static_cast<T*>(data_.get());
  }
  std::string str() const;  // "float32(4, 3)"

 private:
  static Tensor copy_of(DType dtype, std::vector<int64_t> shape, const void* data, size_t bytes);
  void check_dtype(DType dtype) const;

  DType dtype_ = DType::kFloat32;
  std::vector<int64_t> shape_;
  std::shared_ptr<void> data_;
};

// A file of named tensors (safetensors).
struct NamedTensor {
  std::string name;
  Tensor tensor;
};
SLUICE_API std::vector<NamedTensor> load_tensors(const std::string& path);                       // throws kIo, kValue
SLUICE_API void save_tensors(const std::string& path, const std::vector<NamedTensor>& tensors);  // throws kIo

}  // namespace sluice::api
