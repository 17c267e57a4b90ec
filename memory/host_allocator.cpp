#include "base/log.h"
#include "memory/allocator.h"
#include "memory/counted_bytes.h"
#include "streams/host_memory.h"

namespace sluice {
namespace {

class HostAllocator final : public Allocator {
 public:
  void* allocate(uint64_t bytes) override {
    void* data = allocate_host("host", bytes);
    counted_.add(bytes);
    log(LogLevel::kTrace, LogArea::kMemory, "host: {} bytes allocated", bytes);
    return data;
  }
  void deallocate(void* data, uint64_t bytes) noexcept override {
    deallocate_host(data);
    counted_.remove(bytes);
  }
  AllocatorStats stats() const override { return counted_.stats(); }
  void reset_peak() override { counted_.reset_peak(); }

 private:
  CountedBytes counted_;
};

}  // namespace

std::shared_ptr<Allocator> make_host_allocator() { return std::make_shared<HostAllocator>(); }

}  // namespace sluice
