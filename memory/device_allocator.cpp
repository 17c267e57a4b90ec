#include <utility>

#include "memory/allocator.h"
#include "memory/counted_bytes.h"
#include "streams/stream.h"

namespace sluice {
namespace {

class DeviceAllocator final : public Allocator {
 public:
  DeviceAllocator(Device& device, plan::Space space, std::shared_ptr<CountedBytes> total)
      : device_(device), space_(space), total_(std::move(total)) {}
  void* allocate(uint64_t bytes) override {
    ReservedBytes reserved(total_.get(), bytes);
    if (total_ != nullptr) total_->make_room();
    void* data = device_.allocate(space_, bytes);
    reserved.keep();
    counted_.add(bytes);
    return data;
  }
  void deallocate(void* data, uint64_t bytes) noexcept override {
    device_.deallocate(space_, data, bytes);
    counted_.remove(bytes);
    if (total_ != nullptr) total_->remove(bytes);
  }
  AllocatorStats stats() const override { return counted_.stats(); }
  void reset_peak() override { counted_.reset_peak(); }

 private:
  Device& device_;
  const plan::Space space_;
  const std::shared_ptr<CountedBytes> total_;
  CountedBytes counted_;
};

}  // namespace

std::shared_ptr<Allocator> make_device_allocator(Device& device, plan::Space space,
                                                 std::shared_ptr<CountedBytes> total) {
  return std::make_shared<DeviceAllocator>(device, space, std::move(total));
}

}  // namespace sluice
