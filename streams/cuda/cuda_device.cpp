#include "streams/cuda/cuda_device.h"

#include "base/log.h"
#include "streams/cuda/cuda_stream.h"

namespace sluice::cuda {

CudaDevice::CudaDevice(DeviceId id, const DeviceOptions& options)
    : context_(std::make_shared<CudaContext>(id, driver(), options.pinned_bytes)) {
  log(LogLevel::kInfo, LogArea::kStreams, "device {}: {}, {} bytes", id.str(), context_->name(),
      context_->memory_bytes());
}

CudaDevice::~CudaDevice() = default;

plan::DeviceDesc CudaDevice::describe() const {
  plan::DeviceDesc desc;
  desc.device = context_->id;
  desc.host_memory = false;
  desc.asynchronous = true;
  desc.dma = true;
  desc.memory_bytes = context_->memory_bytes();
  return desc;
}

std::unique_ptr<Stream> CudaDevice::create_stream(plan::StreamKind kind, int) {
  return std::make_unique<CudaStream>(context_, kind);
}

void* CudaDevice::allocate(const plan::Space& space, uint64_t bytes) {
  return space.kind == plan::SpaceKind::kDevice ? context_->allocate(bytes) : context_->allocate_pinned(bytes);
}

void CudaDevice::deallocate(const plan::Space& space, void* data, uint64_t bytes) {
  if (space.kind == plan::SpaceKind::kDevice) {
    context_->deallocate(data);
  } else {
    context_->deallocate_pinned(data, bytes);
  }
}

void CudaDevice::check_owned(const char* where, const void* device) const {
  SLUICE_CHECK(context_->owns(device), "{}: {} is not memory of {}; must be a device address", where, device,
               context_->id.str());
}

void CudaDevice::copy_to_host(void* host, const void* device, uint64_t bytes) {
  check_owned("copy_to_host", device);
  if (bytes == 0) return;
  const CurrentContext current(*context_);
  context_->check(context_->driver.cuMemcpyDtoH(host, reinterpret_cast<CUdeviceptr>(device), bytes), "cuMemcpyDtoH");
}

void CudaDevice::copy_from_host(void* device, const void* host, uint64_t bytes) {
  check_owned("copy_from_host", device);
  if (bytes != 0) context_->write(device, host, bytes);
}

}  // namespace sluice::cuda
