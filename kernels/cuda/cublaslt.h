#pragma once
// cuBLASLt as a table of its functions: the one door to it. Filled from the library at run time; where there is none,
// generated kernels multiply.
#include <cublasLt.h>

#include <memory>
#include <string>

#include "base/device.h"
#include "streams/cuda/cuda_context.h"

namespace sluice::cuda {

// clang-format off
#define SLUICE_CUBLASLT_CALLS(X)                                                                       \
  X(cublasLtCreate) X(cublasLtDestroy) X(cublasLtGetProperty) X(cublasLtGetStatusName)                 \
  X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute)           \
  X(cublasLtMatrixLayoutCreate) X(cublasLtMatrixLayoutDestroy) X(cublasLtMatrixLayoutSetAttribute)     \
  X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy)                                 \
  X(cublasLtMatmulPreferenceSetAttribute) X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmul)
// clang-format on

struct CublasLt {
#define SLUICE_CUBLASLT_MEMBER(name) decltype(&::name) name = nullptr;
  SLUICE_CUBLASLT_CALLS(SLUICE_CUBLASLT_MEMBER)
#undef SLUICE_CUBLASLT_MEMBER

  std::string version() const;  // "13.1.0"
  // Throws kRuntime "<op>: <call>: CUBLAS_STATUS_...; ..." where the status is none of success.
  void check(cublasStatus_t status, const std::string& op, const char* call) const;
};

// The library that `path` names. Throws kUnsupported.
CublasLt load_cublaslt(const std::string& path);

// The library of this process: SLUICE_CUBLASLT, else libcublasLt.so.13. Null where that is not to be had, or
// SLUICE_CUBLASLT is "off"; throws kUnsupported where it names one that cannot be loaded. Thread-safe.
const CublasLt* cublaslt();

// A library on one device, with the context that its calls need.
class CublasLtDevice {
 public:
  CublasLtDevice(const CublasLt& library, const DeviceId& device);
  ~CublasLtDevice();
  CublasLtDevice(const CublasLtDevice&) = delete;
  CublasLtDevice& operator=(const CublasLtDevice&) = delete;
  const CudaContext& context() const { return context_; }
  cublasLtHandle_t handle() const { return handle_; }

 private:
  const CublasLt& library_;
  const CudaContext context_;
  cublasLtHandle_t handle_ = nullptr;
};
// One for all kernels of a device, as long as one of them lives. REQUIRES: cublaslt() is there. Thread-safe.
std::shared_ptr<const CublasLtDevice> cublaslt_device(const DeviceId& device);

}  // namespace sluice::cuda
