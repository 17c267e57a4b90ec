// The functions that the core finds in libsluice_cuda.so.
#include "streams/backend.h"

#include "kernels/cuda/cuda_kernels.h"
#include "streams/cuda/cuda_device.h"

extern "C" __attribute__((visibility("default"))) const sluice::Backend* sluice_backend() {
  static const sluice::Backend backend{
      SLUICE_BACKEND_ABI,
      "cuda",
      [](const sluice::DeviceId& id, const sluice::DeviceOptions& options) -> std::unique_ptr<sluice::Device> {
        return std::make_unique<sluice::cuda::CudaDevice>(id, options);
      },
      sluice::cuda::add_cuda_kernels,
      sluice::cuda::nccl_collectives(),
      sluice::cuda::cuda_libraries};
  return &backend;
}
