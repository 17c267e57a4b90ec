#pragma once
// An NVIDIA GPU.
#include <memory>

#include "streams/cuda/cuda_context.h"
#include "streams/devices.h"

namespace sluice::cuda {

// Thread safety: all members may be called from any thread. Streams share what they need of it and may end later.
class CudaDevice final : public Device {
 public:
  // Throws kUnsupported when the driver, or the device in it, is missing.
  CudaDevice(DeviceId id, const DeviceOptions& options);
  ~CudaDevice() override;
  plan::DeviceDesc describe() const override;
  std::unique_ptr<Stream> create_stream(plan::StreamKind kind, int index) override;
  void* allocate(const plan::Space& space, uint64_t bytes) override;
  void deallocate(const plan::Space& space, void* data, uint64_t bytes) override;
  // Throw kValue when the device side is not this device's memory, kRuntime when the device is poisoned.
  void copy_to_host(void* host, const void* device, uint64_t bytes) override;
  void copy_from_host(void* device, const void* host, uint64_t bytes) override;

 private:
  void check_owned(const char* where, const void* device) const;
  const std::shared_ptr<CudaContext> context_;
};

}  // namespace sluice::cuda
