#pragma once
// A pretend accelerator: its own memory, asynchronous streams, late failures. Its kernels compute on the host's cores
// and give the host's results bit for bit; it makes real what is around them: copies, events, waits, write after read,
// errors that surface after the launch.
#include <memory>
#include <string>

#include "streams/devices.h"

namespace sluice {

struct SimShared;

// Thread safety: all members may be called from any thread. Streams share what they need of it and may end later.
class SimDevice final : public Device {
 public:
  SimDevice(DeviceId id, const DeviceOptions& options);
  ~SimDevice() override;
  plan::DeviceDesc describe() const override;
  std::unique_ptr<Stream> create_stream(plan::StreamKind kind, int index) override;
  void* allocate(const plan::Space& space, uint64_t bytes) override;
  void deallocate(const plan::Space& space, void* data, uint64_t bytes) override;
  // Throw kValue when the device side is not this device's memory.
  void copy_to_host(void* host, const void* device, uint64_t bytes) override;
  void copy_from_host(void* device, const void* host, uint64_t bytes) override;

  // `data` lies in memory of this device.
  bool owns(const void* data) const;
  // The `nth` kernel of `op` (empty: of any op) executed from now on fails, when it completes, with `status`.
  void fail_next(const std::string& op, int nth, const Status& status);

 private:
  const DeviceId id_;
  const int cores_;
  std::shared_ptr<SimShared> shared_;
};

}  // namespace sluice
