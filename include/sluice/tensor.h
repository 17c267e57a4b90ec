#pragma once
// Tensors, contiguous and row-major, for what goes into and comes out of a session: in host memory, or on a device.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dtype.h"
#include "export.h"

namespace sluice::api {

class Engine;

// Copies share memory.
class SLUICE_API Tensor {
 public:
  Tensor() = default;
  // Zeros. Throws kValue on a negative dimension, an overflowing size, or a dtype that is none.
  Tensor(DType dtype, std::vector<int64_t> shape);
  // Shares `data`, which must hold the whole tensor. Throws the same.
  Tensor(DType dtype, std::vector<int64_t> shape, std::shared_ptr<void> data);
  // The same of memory of a device, "cuda:0". Sluice believes what is said of its place, and the data there must be
  // complete.
  Tensor(DType dtype, std::vector<int64_t> shape, std::shared_ptr<void> data, const std::string& device);
  template <class T>
  static Tensor from(const std::vector<T>& values, std::vector<int64_t> shape) {
    return copy_of(dtype_of<T>(), std::move(shape), values.data(), values.size() * sizeof(T));
  }

  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t size() const;  // elements
  size_t bytes() const { return static_cast<size_t>(size()) * dtype_size(dtype_); }
  void* raw() const { return data_.get(); }  // of a tensor on a device, its address there
  std::string device() const;                // in whose memory it lies: "cpu:0", "cuda:0"
  // A copy on another device, "cpu" for host memory, made by now; itself where it is there already. Throws kUnsupported
  // for a device that there is not, kMemory. The copy may outlive the engine.
  Tensor to(Engine& engine, const std::string& device) const;
  const std::shared_ptr<void>& shared() const { return data_; }  // what copies share
  // Throws kType when T is not the element type, kValue of a tensor on a device.
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
