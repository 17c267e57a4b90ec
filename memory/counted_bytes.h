#pragma once
// The counters of an allocator. Thread-safe.
#include <atomic>

#include "memory/allocator.h"

namespace sluice {

class CountedBytes {
 public:
  void add(uint64_t bytes) {
    const uint64_t now = current_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    allocations_.fetch_add(1, std::memory_order_relaxed);
    for (uint64_t peak = peak_.load(std::memory_order_relaxed);
         now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed);) {
    }
  }
  void remove(uint64_t bytes) { current_.fetch_sub(bytes, std::memory_order_relaxed); }
  void reset_peak() { peak_.store(current_.load(std::memory_order_relaxed), std::memory_order_relaxed); }
  AllocatorStats stats() const {
    return {current_.load(std::memory_order_relaxed), peak_.load(std::memory_order_relaxed),
            allocations_.load(std::memory_order_relaxed)};
  }

 private:
  std::atomic<uint64_t> current_{0}, peak_{0}, allocations_{0};
};

}  // namespace sluice
