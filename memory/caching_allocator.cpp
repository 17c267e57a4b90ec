#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "base/fork.h"
#include "base/mutex.h"
#include "memory/allocator.h"
#include "memory/counted_bytes.h"

namespace sluice {
namespace {

// Size classes: eight per doubling, so a block is at most an eighth larger than asked for.
constexpr uint64_t kSmallest = 64;
constexpr int kSteps = 8;
constexpr int kClasses = 58 * kSteps;
constexpr uint64_t kLargest = uint64_t{1} << 60;  // beyond it requests go upstream, which refuses them
constexpr uint64_t kAlwaysKept = uint64_t{64} << 20;

struct SizeClass {
  int index = 0;
  uint64_t bytes = 0;  // of its blocks
};

SizeClass class_of(uint64_t bytes) {
  if (bytes <= kSmallest * kSteps) {
    const uint64_t n = bytes == 0 ? 1 : (bytes + kSmallest - 1) / kSmallest;
    return {static_cast<int>(n - 1), n * kSmallest};
  }
  // bytes lies in (2^k, 2^(k+1)], cut in kSteps.
  const int k = std::bit_width(bytes - 1) - 1;
  const uint64_t step = (uint64_t{1} << k) / kSteps;
  const uint64_t n = (bytes - (uint64_t{1} << k) + step - 1) / step;  // 1..kSteps
  const int doubling = k - std::bit_width(kSmallest * kSteps) + 1;
  return {(doubling + 1) * kSteps + static_cast<int>(n) - 1, (uint64_t{1} << k) + n * step};
}

// Invariant: memory held upstream stays below twice the peak in use plus kAlwaysKept, and blocks are cached only within
// the total's limits; beyond, cached blocks go back.
class CachingAllocator final : public Allocator {
 public:
  CachingAllocator(std::shared_ptr<Allocator> upstream, CacheOptions options)
      : upstream_(std::move(upstream)), options_(std::move(options)) {}
  ~CachingAllocator() override { trim(held_bytes_); }

  void* allocate(uint64_t bytes) override {
    if (bytes > kLargest) return upstream_->allocate(bytes);
    const SizeClass size = class_of(bytes);
    const MutexLock lock(mutex_);
    ReservedBytes reserved(options_.total.get(), bytes);
    auto& blocks = cached_[static_cast<size_t>(size.index)];
    void* data = nullptr;
    if (!blocks.empty()) {
      data = blocks.back();
      blocks.pop_back();
      cached_bytes_ -= size.bytes;
    } else {
      data = allocate_upstream(size.bytes, bytes);
    }
    reserved.keep();
    counted_.add_alone(bytes);
    peak_held_ = std::max(peak_held_, held_bytes_ - cached_bytes_);
    return data;
  }

  void deallocate(void* data, uint64_t bytes) noexcept override {
    const SizeClass size = class_of(bytes);
    const MutexLock lock(mutex_);
    counted_.remove_alone(bytes);
    if (options_.total != nullptr) options_.total->remove(bytes);
    try {
      cached_[static_cast<size_t>(size.index)].push_back(data);
      cached_bytes_ += size.bytes;
      const uint64_t most = options_.total == nullptr ? CountedBytes::kNoLimit : options_.total->cache_limit();
      if (cached_bytes_ > most) trim(cached_bytes_ - most);
    } catch (const std::bad_alloc&) {
      if (options_.before_release) options_.before_release();
      upstream_->deallocate(data, size.bytes);
      held_bytes_ -= size.bytes;
    }
  }

  AllocatorStats stats() const override { return counted_.stats(); }
  void reset_peak() override { counted_.reset_peak(); }
  uint64_t held_bytes() const override {
    const MutexLock lock(mutex_);
    return held_bytes_;
  }
  void release_kept() override {
    const MutexLock lock(mutex_);
    trim(cached_bytes_);
    peak_held_ = held_bytes_;
  }

 private:
  // The most bytes that may be held here together with a block for `bytes`, which are reserved.
  uint64_t most_held(uint64_t bytes) const SLUICE_REQUIRES(mutex_) {
    const uint64_t most = 2 * peak_held_ + kAlwaysKept;
    if (options_.total == nullptr || options_.total->limit() == CountedBytes::kNoLimit) return most;
    const uint64_t limit = options_.total->limit(), used = options_.total->current(), here = counted_.current() + bytes;
    const uint64_t others = used > here ? used - here : 0;
    return std::min(most, limit > others ? limit - others : 0);
  }

  void* allocate_upstream(uint64_t bytes, uint64_t asked) SLUICE_REQUIRES(mutex_) {
    const uint64_t limit = most_held(asked);
    if (cached_bytes_ > 0 && held_bytes_ + bytes > limit) trim(held_bytes_ + bytes - limit);
    void* data = nullptr;
    try {
      data = upstream_->allocate(bytes);
    } catch (const Error&) {
      if (cached_bytes_ == 0) throw;
      trim(cached_bytes_);
      data = upstream_->allocate(bytes);
    }
    held_bytes_ += bytes;
    return data;
  }

  // Gives back at least `bytes` of cached blocks, largest first, as far as there are any.
  void trim(uint64_t bytes) noexcept SLUICE_REQUIRES(mutex_) {
    uint64_t freed = 0;
    if (options_.before_release && bytes > 0 && cached_bytes_ > 0) options_.before_release();
    for (int index = kClasses - 1; index >= 0 && freed < bytes && cached_bytes_ > 0; --index) {
      auto& blocks = cached_[static_cast<size_t>(index)];
      const uint64_t size = class_bytes(index);
      while (!blocks.empty() && freed < bytes) {
        upstream_->deallocate(blocks.back(), size);
        blocks.pop_back();
        freed += size;
        cached_bytes_ -= size;
        held_bytes_ -= size;
      }
    }
  }

  static uint64_t class_bytes(int index) {
    const uint64_t n = static_cast<uint64_t>(index % kSteps) + 1;
    if (index < kSteps) return n * kSmallest;
    const uint64_t base = kSmallest * kSteps << (index / kSteps - 1);
    return base + n * (base / kSteps);
  }

  const std::shared_ptr<Allocator> upstream_;
  const CacheOptions options_;
  CountedBytes counted_;
  mutable Mutex mutex_;
  const ForkLock fork_lock_{mutex_};
  std::array<std::vector<void*>, kClasses> cached_ SLUICE_GUARDED_BY(mutex_);
  uint64_t cached_bytes_ SLUICE_GUARDED_BY(mutex_) = 0;
  uint64_t held_bytes_ SLUICE_GUARDED_BY(mutex_) = 0;  // from upstream: in use and cached
  uint64_t peak_held_ SLUICE_GUARDED_BY(mutex_) = 0;   // most ever in use, as blocks
};

}  // namespace

std::shared_ptr<Allocator> make_caching_allocator(std::shared_ptr<Allocator> upstream, CacheOptions options) {
  return std::make_shared<CachingAllocator>(std::move(upstream), std::move(options));
}

}  // namespace sluice
