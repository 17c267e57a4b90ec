#pragma once
// Counted memory, and the storage that eager tensors, variables and results share.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "plan/plan.h"

namespace sluice {

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
};

// Straight to malloc, one call each: for plans, which allocate once.
std::shared_ptr<Allocator> make_host_allocator();
// Keeps freed blocks by size class for reuse: for eager tensors. stats() counts bytes in use, not cached ones.
std::shared_ptr<Allocator> make_caching_allocator(std::shared_ptr<Allocator> upstream);
// Memory of a device's space. REQUIRES: `device` outlives the allocator.
std::shared_ptr<Allocator> make_device_allocator(Device& device, plan::Space space);

// Someone with asynchronous accesses to a storage in flight: a session that has it bound as a variable.
class StorageUser {
 public:
  virtual ~StorageUser() = default;
  // Blocks until every access submitted so far is done; with `writes_only`, every write.
  virtual void wait_idle(bool writes_only) = 0;
};

// A block of memory with one owner count. Eager code calls before_read / before_write ahead of touching data(), which
// gives each variable its program order: reads wait for submitted writers, writes also for submitted readers.
class Storage {
 public:
  Storage(std::shared_ptr<Allocator> allocator, uint64_t bytes, plan::Space space = {});
  // Borrows foreign memory; `release` runs when the last owner goes.
  Storage(void* data, uint64_t bytes, std::function<void()> release);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  const plan::Space& space() const { return space_; }

  void attach(std::weak_ptr<StorageUser> user, bool writes);
  void detach(const StorageUser* user);
  // `self`: a user that orders its own accesses and is not waited for.
  void before_read(const StorageUser* self = nullptr) { if (has_users_.load(std::memory_order_acquire)) wait_users(self, true); }
  void before_write(const StorageUser* self = nullptr) { if (has_users_.load(std::memory_order_acquire)) wait_users(self, false); }

 private:
  struct Use {
    std::weak_ptr<StorageUser> user;
    const StorageUser* key;
    bool writes;
  };
  void wait_users(const StorageUser* self, bool for_read);

  std::shared_ptr<Allocator> allocator_;
  void* data_ = nullptr;
  uint64_t bytes_ = 0;
  plan::Space space_;
  std::function<void()> release_;
  std::atomic<bool> has_users_{false};
  std::mutex mutex_;
  std::vector<Use> users_;
};

}  // namespace sluice
