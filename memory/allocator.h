#pragma once
// Counted memory.
#include <cstdint>
#include <functional>
#include <memory>

#include "plan/plan.h"

namespace sluice {

class CountedBytes;
class Device;

// Bytes as the allocator itself counts them, per memory space; independent of any ledger.
struct AllocatorStats {
  uint64_t current_bytes = 0;
  uint64_t peak_bytes = 0;
  uint64_t allocations = 0;
};

// Allocates in one memory space and counts. Thread-safe.
class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual void* allocate(uint64_t bytes) = 0;  // 64-aligned; throws kMemory naming the space and the request
  virtual void deallocate(void* data, uint64_t bytes) noexcept = 0;
  virtual AllocatorStats stats() const = 0;
  virtual void reset_peak() = 0;
  // Taken from where it has its memory: more than is in use where it keeps blocks.
  virtual uint64_t held_bytes() const { return stats().current_bytes; }
  // Gives back what it keeps for reuse.
  virtual void release_kept() {}
};

// A program's own functions for memory of the host. Without them it is the system's. They are called from any thread,
// for as long as some of the memory is held, and must not throw.
struct HostMemory {
  std::function<void*(uint64_t bytes, uint64_t alignment)> allocate = nullptr;  // null: there is none
  std::function<void(void* data, uint64_t bytes)> release = nullptr;
};

// Straight to malloc, one call each: for plans, which allocate once.
std::shared_ptr<Allocator> make_host_allocator();
struct CacheOptions {
  std::shared_ptr<CountedBytes> total = nullptr;   // counts what is in use, too
  std::function<void()> before_release = nullptr;  // called before blocks go back, which queued work may use until then
};
// Keeps freed blocks by size class for reuse: for eager tensors. stats() counts bytes in use, not cached ones.
std::shared_ptr<Allocator> make_caching_allocator(std::shared_ptr<Allocator> upstream, CacheOptions options = {});
// Memory of a device's space. `total` counts it, too. REQUIRES: `device` outlives the allocator.
std::shared_ptr<Allocator> make_device_allocator(Device& device, plan::Space space,
                                                 std::shared_ptr<CountedBytes> total = nullptr);

}  // namespace sluice
