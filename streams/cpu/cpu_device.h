#pragma once
// The host's cores and memory as a device.
#include "streams/devices.h"

namespace sluice {

class CpuDevice final : public Device {
 public:
  CpuDevice(DeviceId id, const DeviceOptions& options) : id_(id), cores_(options.cores) {}
  plan::DeviceDesc describe() const override;
  std::unique_ptr<Stream> create_stream(plan::StreamKind kind, int index) override;
  void* allocate(const plan::Space& space, uint64_t bytes) override;
  void deallocate(const plan::Space& space, void* data, uint64_t bytes) override;
  void copy_to_host(void* host, const void* device, uint64_t bytes) override;
  void copy_from_host(void* device, const void* host, uint64_t bytes) override;

 private:
  const DeviceId id_;
  const int cores_;
};

}  // namespace sluice
