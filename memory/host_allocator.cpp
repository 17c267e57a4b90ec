#include "base/log.h"
#include "memory/allocator.h"
#include "memory/counted_bytes.h"
#include "streams/host_memory.h"

namespace sluice {
namespace {

class HostAllocator final : public Allocator {
 public:
  explicit HostAllocator(std::shared_ptr<CountedBytes> total) : total_(std::move(total)) {}
  void* allocate(uint64_t bytes) override {
    ReservedBytes reserved(total_.get(), bytes);
    if (total_ != nullptr) total_->make_room();
    void* data = allocate_host("host", bytes);
    reserved.keep();
    counted_.add(bytes);
    log(LogLevel::kTrace, LogArea::kMemory, "host: {} bytes allocated", bytes);
    return data;
  }
  void deallocate(void* data, uint64_t bytes) noexcept override {
    deallocate_host(data);
    counted_.remove(bytes);
    if (total_ != nullptr) total_->remove(bytes);
  }
  AllocatorStats stats() const override { return counted_.stats(); }
  void reset_peak() override { counted_.reset_peak(); }

 private:
  const std::shared_ptr<CountedBytes> total_;
  CountedBytes counted_;
};

}  // namespace

std::shared_ptr<Allocator> make_host_allocator() { return make_host_allocator(nullptr); }
std::shared_ptr<Allocator> make_host_allocator(std::shared_ptr<CountedBytes> total) {
  return std::make_shared<HostAllocator>(std::move(total));
}

}  // namespace sluice
