#include "streams/cpu/cpu_device.h"

#include <unistd.h>

#include <cstring>

#include "streams/cpu/cpu_stream.h"
#include "streams/host_memory.h"

namespace sluice {

plan::DeviceDesc CpuDevice::describe() const {
  plan::DeviceDesc desc;
  desc.device = id_;
  desc.cores = cores_;
  const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  if (pages > 0 && page_bytes > 0) desc.memory_bytes = static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes);
  return desc;
}

std::unique_ptr<Stream> CpuDevice::create_stream(plan::StreamKind kind, int) {
  return std::make_unique<CpuStream>(id_, kind);
}

void* CpuDevice::allocate(const plan::Space& space, uint64_t bytes) {
  return allocate_host(space.str().c_str(), bytes);
}
void CpuDevice::deallocate(const plan::Space&, void* data, uint64_t) { deallocate_host(data); }
void CpuDevice::copy_to_host(void* host, const void* device, uint64_t bytes) { std::memcpy(host, device, bytes); }
void CpuDevice::copy_from_host(void* device, const void* host, uint64_t bytes) { std::memcpy(device, host, bytes); }

}  // namespace sluice
