#pragma once
// The CUDA driver as a table of its functions: the one door to it. Filled from the driver's library when a device is
// first asked for, so building needs headers alone and a machine without a driver gets an error, not a loader's.
#include <cuda.h>

#include <string>

namespace sluice::cuda {

// cuda.h renames functions to their versions (cuMemAlloc_v2); as macro arguments they arrive here renamed.
// clang-format off
#define SLUICE_CUDA_CALLS(X)                                                                           \
  X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString)                                \
  X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName) X(cuDeviceTotalMem) X(cuDeviceGetAttribute)    \
  X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease) X(cuDevicePrimaryCtxSetFlags)               \
  X(cuCtxGetCurrent) X(cuCtxSetCurrent)                                                                \
  X(cuStreamCreate) X(cuStreamDestroy) X(cuStreamSynchronize) X(cuStreamWaitEvent)                     \
  X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize)            \
  X(cuMemAlloc) X(cuMemFree) X(cuMemHostAlloc) X(cuMemFreeHost) X(cuMemGetInfo)                        \
  X(cuMemcpyHtoD) X(cuMemcpyDtoH)                                                                      \
  X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuMemcpyDtoDAsync) X(cuMemsetD8Async)                    \
  X(cuStreamBeginCapture) X(cuStreamEndCapture)                                                        \
  X(cuGraphInstantiate) X(cuGraphLaunch) X(cuGraphDestroy) X(cuGraphExecDestroy)                       \
  X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction) X(cuLaunchKernel)
// clang-format on

struct Driver {
#define SLUICE_CUDA_MEMBER(name) decltype(&::name) name = nullptr;
  SLUICE_CUDA_CALLS(SLUICE_CUDA_MEMBER)
#undef SLUICE_CUDA_MEMBER

  // "CUDA_ERROR_OUT_OF_MEMORY (out of memory)"
  std::string text(CUresult result) const;
};

// The driver, initialised: of SLUICE_CUDA_DRIVER, else libcuda.so.1. Loaded once and kept. Throws kUnsupported when it
// is absent, too old, or finds no device. Thread-safe.
const Driver& driver();

}  // namespace sluice::cuda
