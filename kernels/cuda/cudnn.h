#pragma once
// cuDNN 9 as a table of its functions, and descriptors of its graphs: the one door to it. Filled from the library at
// run time; where there is none, generated kernels serve.
//
// Its C interface, not cudnn-frontend: that would load libcudart and libcuda by names of its own, and throw.
#include <cudnn_graph.h>

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/device.h"
#include "streams/cuda/cuda_context.h"

namespace sluice::cuda {

// clang-format off
#define SLUICE_CUDNN_CALLS(X)                                                                          \
  X(cudnnGetVersion) X(cudnnGetErrorString) X(cudnnGetLastErrorString) X(cudnnCreate) X(cudnnSetStream) \
  X(cudnnBackendCreateDescriptor) X(cudnnBackendDestroyDescriptor) X(cudnnBackendSetAttribute)         \
  X(cudnnBackendGetAttribute) X(cudnnBackendFinalize) X(cudnnBackendExecute)
// clang-format on

struct Cudnn {
#define SLUICE_CUDNN_MEMBER(name) decltype(&::name) name = nullptr;
  SLUICE_CUDNN_CALLS(SLUICE_CUDNN_MEMBER)
#undef SLUICE_CUDNN_MEMBER

  std::string version() const;  // "9.28.0"
  // Throws kRuntime "<op>: <call>: CUDNN_STATUS_...: <what the library adds>; ..." where the status is none of success.
  void check(cudnnStatus_t status, const std::string& op, const char* call) const;
};

// The library that `path` names. Throws kUnsupported.
Cudnn load_cudnn(const std::string& path);

// The library of this process: SLUICE_CUDNN, else libcudnn.so.9. Null where that is not to be had, or SLUICE_CUDNN is
// "off"; throws kUnsupported where it names one that cannot be loaded. Thread-safe.
const Cudnn* cudnn();

std::string cudnn_name();  // "cuDNN 9.28.0" of cudnn(); "" where there is none

// The library on one device, with the context that its calls need. Kept for the process: threads may outlive main().
// Plans belong to the handle that they were made with, and not every one may be executed by two threads at once.
struct CudnnDevice {
  CudaContext context;
  cudnnHandle_t handle = nullptr;
  std::mutex mutex = {};  // of whoever uses the handle or a plan
};
// REQUIRES: cudnn() is there. Thread-safe.
CudnnDevice& cudnn_device(const DeviceId& device);

using CudnnDescriptor = std::unique_ptr<void, cudnnStatus_t (*)(cudnnBackendDescriptor_t)>;

template <class T>
inline constexpr auto kCudnnType = nullptr;  // of a T's attribute
template <>
inline constexpr auto kCudnnType<cudnnHandle_t> = CUDNN_TYPE_HANDLE;
template <>
inline constexpr auto kCudnnType<cudnnDataType_t> = CUDNN_TYPE_DATA_TYPE;
template <>
inline constexpr auto kCudnnType<bool> = CUDNN_TYPE_BOOLEAN;
template <>
inline constexpr auto kCudnnType<int64_t> = CUDNN_TYPE_INT64;
template <>
inline constexpr auto kCudnnType<float> = CUDNN_TYPE_FLOAT;
template <>
inline constexpr auto kCudnnType<double> = CUDNN_TYPE_DOUBLE;
template <>
inline constexpr auto kCudnnType<void*> = CUDNN_TYPE_VOID_PTR;
template <>
inline constexpr auto kCudnnType<cudnnConvolutionMode_t> = CUDNN_TYPE_CONVOLUTION_MODE;
template <>
inline constexpr auto kCudnnType<cudnnPointwiseMode_t> = CUDNN_TYPE_POINTWISE_MODE;
template <>
inline constexpr auto kCudnnType<cudnnBackendHeurMode_t> = CUDNN_TYPE_HEUR_MODE;
template <>
inline constexpr auto kCudnnType<cudnnBackendNumericalNote_t> = CUDNN_TYPE_NUMERICAL_NOTE;

// An attribute to be set. REQUIRES: what it is made of outlives it.
class CudnnAttribute {
 public:
  template <class T>
  CudnnAttribute(cudnnBackendAttributeName_t name, const T& value)
      : CudnnAttribute(name, std::span<const T>(&value, 1)) {}
  template <class T>
  CudnnAttribute(cudnnBackendAttributeName_t name, std::span<const T> values)
      : name(name), type(kCudnnType<T>), count(static_cast<int64_t>(values.size())), data_(values.data()) {}
  CudnnAttribute(cudnnBackendAttributeName_t name, const std::vector<int64_t>& values)
      : CudnnAttribute(name, std::span<const int64_t>(values)) {}
  CudnnAttribute(cudnnBackendAttributeName_t name, const CudnnDescriptor& value)
      : name(name), type(CUDNN_TYPE_BACKEND_DESCRIPTOR), count(1), descriptor_(value.get()) {}
  CudnnAttribute(cudnnBackendAttributeName_t name, const std::vector<cudnnBackendDescriptor_t>& descriptors)
      : name(name),
        type(CUDNN_TYPE_BACKEND_DESCRIPTOR),
        count(static_cast<int64_t>(descriptors.size())),
        data_(descriptors.data()) {}
  const void* data() const { return data_ != nullptr ? data_ : &descriptor_; }

  const cudnnBackendAttributeName_t name;
  const cudnnBackendAttributeType_t type;
  const int64_t count;

 private:
  const void* const data_ = nullptr;
  const cudnnBackendDescriptor_t descriptor_ = nullptr;
};

// Makes and reads descriptors for an op, which errors name.
struct CudnnMaker {
  const Cudnn& library;
  const std::string& op;

  // With these attributes, finalised. Throws kRuntime.
  CudnnDescriptor make(cudnnBackendDescriptorType_t type, const std::vector<CudnnAttribute>& attributes) const;
  // The same, but leaves to the caller what finalising said.
  CudnnDescriptor make(cudnnBackendDescriptorType_t type, const std::vector<CudnnAttribute>& attributes,
                       cudnnStatus_t& finalised) const;
  // One that the library fills in.
  CudnnDescriptor empty(cudnnBackendDescriptorType_t type) const;
  // Fills `values` and returns how many there are.
  size_t get(const CudnnDescriptor& from, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
             size_t most, void* values) const;
};

}  // namespace sluice::cuda
