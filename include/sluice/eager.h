#pragma once
// Tensors that are computed with now, without a graph or a bundle: to prepare inputs, and to look at results. Only in
// sluice::sluice.
//
//   sluice::api::Eager eager(engine);
//   DeviceTensor x = eager.from_buffer(DType::kFloat32, {2, 3}, values, sizeof values);
//   Tensor y = relu(matmul(x, eager.zeros(DType::kFloat32, {3, 4}))).host();
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine.h"
#include "export.h"
#include "extension.h"
#include "tensor.h"

namespace sluice::api {

// A tensor on a device. Immutable; copies share memory. May be used from any thread. An empty one, as made by default,
// throws kValue when asked for anything. It keeps what its Eager has; the engine must outlive it.
class SLUICE_API DeviceTensor {
 public:
  DeviceTensor() = default;
  DType dtype() const;
  std::vector<int64_t> shape() const;
  std::string device() const;  // "cpu:0"
  std::string str() const;     // "float32(4, 3) on cpu:0"
  // A copy on another device, or itself where it is there already. Throws kValue for a device that there is not.
  DeviceTensor to(const std::string& device) const;
  // A copy in host memory. Waits for what computes it, and throws its error.
  Tensor host() const;

 private:
  friend class Eager;
  friend std::vector<DeviceTensor> call(const std::string&, const std::vector<DeviceTensor>&, const Attributes::Items&);
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

// Makes tensors. Thread-safe. The engine must outlive it.
class SLUICE_API Eager {
 public:
  explicit Eager(Engine& engine);
  DeviceTensor zeros(DType dtype, const std::vector<int64_t>& shape, const std::string& device = "cpu") const;
  // A copy of `bytes` bytes, which must be the tensor's size.
  DeviceTensor from_buffer(DType dtype, const std::vector<int64_t>& shape, const void* data, size_t bytes,
                           const std::string& device = "cpu") const;
  DeviceTensor from(const Tensor& tensor, const std::string& device = "cpu") const;
  // call() of an op without inputs.
  std::vector<DeviceTensor> call(const std::string& op, const Attributes::Items& attributes = {}) const;

 private:
  friend class DeviceTensor;
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

// Any op of the reference by its name, or of a loaded extension, on the device of its inputs; an empty tensor is an
// optional input that is not given. Attributes that are not given have their defaults. Throws kValue, kType naming what
// is wrong. Later failures on a device are told by host().
SLUICE_API std::vector<DeviceTensor> call(const std::string& op, const std::vector<DeviceTensor>& inputs,
                                          const Attributes::Items& attributes = {});
// Calls an op with one output.
inline DeviceTensor call1(const std::string& op, const std::vector<DeviceTensor>& inputs,
                          const Attributes::Items& attributes = {}) {
  return call(op, inputs, attributes).at(0);
}

inline DeviceTensor matmul(const DeviceTensor& a, const DeviceTensor& b) { return call1("matmul", {a, b}); }
inline DeviceTensor add(const DeviceTensor& a, const DeviceTensor& b) { return call1("add", {a, b}); }
inline DeviceTensor sub(const DeviceTensor& a, const DeviceTensor& b) { return call1("sub", {a, b}); }
inline DeviceTensor mul(const DeviceTensor& a, const DeviceTensor& b) { return call1("mul", {a, b}); }
inline DeviceTensor div(const DeviceTensor& a, const DeviceTensor& b) { return call1("div", {a, b}); }
inline DeviceTensor relu(const DeviceTensor& x) { return call1("relu", {x}); }
inline DeviceTensor tanh(const DeviceTensor& x) { return call1("tanh", {x}); }
inline DeviceTensor sigmoid(const DeviceTensor& x) { return call1("sigmoid", {x}); }

}  // namespace sluice::api
