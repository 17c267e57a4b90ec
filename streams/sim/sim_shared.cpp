#include "streams/sim/sim_shared.h"

#include <memory>

#include "streams/host_memory.h"

namespace sluice {

SimMemory::~SimMemory() {
  for (const auto& [start, bytes] : blocks_) deallocate_host(reinterpret_cast<void*>(start));
}

void* SimMemory::allocate(uint64_t bytes) {
  std::unique_lock lock(mutex_);
  if (capacity_ > 0 && (bytes > capacity_ || used_ > capacity_ - bytes)) {
    fail(ErrorKind::kMemory,
         "memory: out of memory in {}: {} bytes requested, {} of {} in use; free tensors or use a "
         "smaller batch",
         device_.str(), bytes, used_, capacity_);
  }
  // A byte more: the end of a block, where an empty view may lie, must not be where another one begins.
  const uint64_t taken = bytes == UINT64_MAX ? bytes : bytes + 1;
  std::unique_ptr<void, decltype(&deallocate_host)> data(allocate_host(device_.str().c_str(), taken), deallocate_host);
  blocks_[reinterpret_cast<uintptr_t>(data.get())] = bytes;
  used_ += bytes;
  return data.release();
}

void SimMemory::deallocate(void* data) {
  std::unique_lock lock(mutex_);
  const auto block = blocks_.find(reinterpret_cast<uintptr_t>(data));
  SLUICE_CHECK(block != blocks_.end(), "memory: {} does not own {}; free memory on the device that gave it",
               device_.str(), data);
  used_ -= block->second;
  blocks_.erase(block);
  deallocate_host(data);
}

bool SimMemory::owns(const void* data) const {
  const auto address = reinterpret_cast<uintptr_t>(data);
  std::shared_lock lock(mutex_);
  auto block = blocks_.upper_bound(address);
  if (block == blocks_.begin()) return false;
  --block;
  return address <= block->first + block->second;  // the end itself is the address of an empty view
}

void SimFaults::add(const std::string& op, int nth, const Status& status) {
  SLUICE_CHECK(nth >= 1, "fail_next: nth is {}; must be at least 1", nth);
  std::lock_guard lock(mutex_);
  faults_.push_back({op, nth, status});
  armed_.store(static_cast<int>(faults_.size()), std::memory_order_release);
}

Status SimFaults::take(const std::string& op) {
  if (armed_.load(std::memory_order_acquire) == 0) return {};
  std::lock_guard lock(mutex_);
  Status hit;
  for (size_t i = 0; i < faults_.size();) {
    Fault& fault = faults_[i];
    const bool due = (fault.op.empty() || fault.op == op) && --fault.countdown == 0;
    if (due && hit.ok()) hit = fault.status;
    if (due) {
      faults_.erase(faults_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  armed_.store(static_cast<int>(faults_.size()), std::memory_order_release);
  return hit;
}

}  // namespace sluice
