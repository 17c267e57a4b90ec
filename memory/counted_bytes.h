#pragma once
// The counters of an allocator, and those of a device, whose memory several allocators give. Thread-safe.
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "base/fork.h"
#include "base/mutex.h"
#include "memory/allocator.h"

namespace sluice {

class CountedBytes {
 public:
  static constexpr uint64_t kNoLimit = UINT64_MAX;

  explicit CountedBytes(std::string name = "") : name_(std::move(name)) {}

  void add(uint64_t bytes) { allocated(current_.fetch_add(bytes, std::memory_order_relaxed) + bytes); }
  void remove(uint64_t bytes) { current_.fetch_sub(bytes, std::memory_order_relaxed); }
  // The same at the price of plain writes. REQUIRES: one thread at a time adds and removes.
  void add_alone(uint64_t bytes) {
    const uint64_t now = current() + bytes;
    current_.store(now, std::memory_order_relaxed);
    allocations_.store(allocations_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    raise_peak(now);
  }
  void remove_alone(uint64_t bytes) { current_.store(current() - bytes, std::memory_order_relaxed); }
  void reset_peak() { peak_.store(current(), std::memory_order_relaxed); }
  uint64_t current() const { return current_.load(std::memory_order_relaxed); }
  AllocatorStats stats() const {
    return {current(), peak_.load(std::memory_order_relaxed), allocations_.load(std::memory_order_relaxed)};
  }

  // Bytes that are about to be allocated count from reserve() on, so that no two threads pass the limit together.
  // Throws kMemory where they would exceed it, and then counts nothing. Returns what is in use with them.
  uint64_t reserve(uint64_t bytes) {
    if (limit() == kNoLimit) [[likely]]
      return current_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    return reserve_within_limit(bytes);
  }
  // They have been allocated.
  void allocated(uint64_t now) {
    allocations_.fetch_add(1, std::memory_order_relaxed);
    raise_peak(now);
  }

  // The limit of the bytes in use. It may be less than that: then nothing can be allocated until enough has been freed.
  uint64_t limit() const { return limit_.load(std::memory_order_relaxed); }
  void set_limit(uint64_t bytes);
  // The limit of the bytes that each cache keeps for reuse.
  uint64_t cache_limit() const { return cache_limit_.load(std::memory_order_relaxed); }
  void set_cache_limit(uint64_t bytes);

  // An allocator that keeps freed memory of what is counted here, for as long as it lives.
  void add_cache(std::weak_ptr<Allocator> cache);
  // The bytes that all of the caches keep.
  uint64_t kept_bytes() const;
  void release_kept();
  // Makes them give back what they keep where it would exceed the limit together with what is in use.
  void make_room();

 private:
  void raise_peak(uint64_t now) {
    for (uint64_t peak = peak_.load(std::memory_order_relaxed);
         now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed);) {
    }
  }
  uint64_t reserve_within_limit(uint64_t bytes);
  std::vector<std::shared_ptr<Allocator>> caches() const;

  const std::string name_;  // of the device
  std::atomic<uint64_t> current_{0}, peak_{0}, allocations_{0}, limit_{kNoLimit}, cache_limit_{kNoLimit};
  mutable Mutex mutex_;
  const ForkLock fork_lock_{mutex_};
  std::vector<std::weak_ptr<Allocator>> caches_ SLUICE_GUARDED_BY(mutex_);
};

// Reserves in `total`, if there is one, and takes that back unless keep() is called.
class ReservedBytes {
 public:
  ReservedBytes(CountedBytes* total, uint64_t bytes)
      : total_(total), bytes_(bytes), now_(total == nullptr ? 0 : total->reserve(bytes)) {}
  ~ReservedBytes() {
    if (total_ != nullptr) total_->remove(bytes_);
  }
  ReservedBytes(const ReservedBytes&) = delete;
  ReservedBytes& operator=(const ReservedBytes&) = delete;
  void keep() {
    if (total_ != nullptr) std::exchange(total_, nullptr)->allocated(now_);
  }

 private:
  CountedBytes* total_;
  const uint64_t bytes_, now_;
};

// One call of `memory` each, or of malloc. `total`, if not null, counts it, too, and limits it.
std::shared_ptr<Allocator> make_host_allocator(std::shared_ptr<CountedBytes> total, HostMemory memory = {});

}  // namespace sluice
