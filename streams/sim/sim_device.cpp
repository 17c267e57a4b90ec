#include "streams/sim/sim_device.h"

#include <cstring>

#include "streams/host_memory.h"
#include "streams/sim/sim_shared.h"
#include "streams/sim/sim_stream.h"

namespace sluice {

SimDevice::SimDevice(DeviceId id, const DeviceOptions& options)
    : id_(id), cores_(options.cores), shared_(std::make_shared<SimShared>(id, options.memory_bytes)) {
  SLUICE_CHECK((options.acquire_cores == nullptr) == (options.release_cores == nullptr),
               "device: {}: only one of acquire_cores and release_cores; give both or neither", id.str());
  shared_->acquire_cores = options.acquire_cores;
  shared_->release_cores = options.release_cores;
}

SimDevice::~SimDevice() = default;

plan::DeviceDesc SimDevice::describe() const {
  plan::DeviceDesc desc;
  desc.device = id_;
  desc.host_memory = false;
  desc.asynchronous = true;
  desc.cores = cores_;
  desc.memory_bytes = shared_->memory.capacity();
  return desc;
}

std::unique_ptr<Stream> SimDevice::create_stream(plan::StreamKind kind, int) {
  return std::make_unique<SimStream>(id_, kind, shared_);
}

void* SimDevice::allocate(const plan::Space& space, uint64_t bytes) {
  return space.kind == plan::SpaceKind::kDevice ? shared_->memory.allocate(bytes)
                                                : allocate_host(space.str().c_str(), bytes);
}

void SimDevice::deallocate(const plan::Space& space, void* data, uint64_t) {
  if (space.kind == plan::SpaceKind::kDevice) {
    shared_->memory.deallocate(data);
  } else {
    deallocate_host(data);
  }
}

void SimDevice::copy_to_host(void* host, const void* device, uint64_t bytes) {
  SLUICE_CHECK(owns(device), "copy_to_host: {} is not memory of {}; must be a device address", device, id_.str());
  std::memcpy(host, device, bytes);
}

void SimDevice::copy_from_host(void* device, const void* host, uint64_t bytes) {
  SLUICE_CHECK(owns(device), "copy_from_host: {} is not memory of {}; must be a device address", device, id_.str());
  std::memcpy(device, host, bytes);
}

bool SimDevice::owns(const void* data) const { return shared_->memory.owns(data); }

void SimDevice::fail_next(const std::string& op, int nth, const Status& status) {
  shared_->faults.add(op, nth, status);
}

}  // namespace sluice
