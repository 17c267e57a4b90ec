#pragma once
// Memory that requests may hold before and while they run: of all clients together, and of each.
#include <atomic>
#include <cstdint>
#include <memory>

namespace sluice::serving {

// Thread-safe.
class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t limit) : limit_(limit) {}
  uint64_t limit() const { return limit_; }
  uint64_t held() const { return held_.load(std::memory_order_relaxed); }

 private:
  friend class MemoryShare;
  bool take(uint64_t bytes);
  void give(uint64_t bytes) { held_.fetch_sub(bytes, std::memory_order_relaxed); }

  const uint64_t limit_;
  std::atomic<uint64_t> held_{0};
};

// What one client holds of a budget; given back in the end. One thread at a time.
class MemoryShare {
 public:
  // At most `limit` bytes, and the budget's.
  MemoryShare(std::shared_ptr<MemoryBudget> all, uint64_t limit);
  ~MemoryShare() { clear(); }
  MemoryShare(const MemoryShare&) = delete;
  MemoryShare& operator=(const MemoryShare&) = delete;

  // To be called before, or as, so many more are used. Throws kTooLarge for what this client may never have,
  // kOverloaded where the others hold too much.
  void take(uint64_t bytes);
  void give(uint64_t bytes);
  void clear() { give(held_); }
  uint64_t held() const { return held_; }

 private:
  const std::shared_ptr<MemoryBudget> all_;
  const uint64_t limit_;
  uint64_t held_ = 0;
};

}  // namespace sluice::serving
