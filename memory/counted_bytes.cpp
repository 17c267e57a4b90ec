#include "memory/counted_bytes.h"

#include "base/error.h"
#include "plan/pack/ledger.h"

namespace sluice {

uint64_t CountedBytes::reserve_within_limit(uint64_t bytes) {
  for (uint64_t now = current();;) {
    const uint64_t limit = this->limit();
    if (bytes > limit || now > limit - bytes)
      fail(
          ErrorKind::kMemory,
          "memory: out of memory in {}: {} requested; {} in use, and the limit that was set is {}; free tensors, use a "
          "smaller batch or raise the limit",
          name_, plan::bytes_str(bytes), plan::bytes_str(now), plan::bytes_str(limit));
    if (current_.compare_exchange_weak(now, now + bytes, std::memory_order_relaxed)) return now + bytes;
  }
}

void CountedBytes::set_limit(uint64_t bytes) {
  limit_.store(bytes, std::memory_order_relaxed);
  make_room();
}

void CountedBytes::set_cache_limit(uint64_t bytes) {
  cache_limit_.store(bytes, std::memory_order_relaxed);
  if (kept_bytes() > bytes) release_kept();
}

void CountedBytes::add_cache(std::weak_ptr<Allocator> cache) {
  const MutexLock lock(mutex_);
  std::erase_if(caches_, [](const auto& known) { return known.expired(); });
  caches_.push_back(std::move(cache));
}

// Held while they are asked, and asked outside the lock: to give back memory they wait for what uses it.
std::vector<std::shared_ptr<Allocator>> CountedBytes::caches() const {
  std::vector<std::shared_ptr<Allocator>> alive;
  const MutexLock lock(mutex_);
  for (const std::weak_ptr<Allocator>& known : caches_)
    if (std::shared_ptr<Allocator> cache = known.lock()) alive.push_back(std::move(cache));
  return alive;
}

uint64_t CountedBytes::kept_bytes() const {
  uint64_t bytes = 0;
  for (const auto& cache : caches()) {
    const uint64_t used = cache->stats().current_bytes, held = cache->held_bytes();
    bytes += held > used ? held - used : 0;
  }
  return bytes;
}

void CountedBytes::release_kept() {
  for (const auto& cache : caches()) cache->release_kept();
}

void CountedBytes::make_room() {
  const uint64_t limit = this->limit();
  if (limit == kNoLimit) return;
  const uint64_t used = current();
  if (used >= limit || kept_bytes() > limit - used) release_kept();
}

}  // namespace sluice
