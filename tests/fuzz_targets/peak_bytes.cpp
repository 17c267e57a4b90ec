#include "fuzz_targets/peak_bytes.h"

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> live{0}, most{0};

void* take(size_t bytes, size_t alignment) {
  void* data = nullptr;
  if (alignment <= alignof(std::max_align_t)) {
    data = std::malloc(bytes ? bytes : 1);
  } else if (posix_memalign(&data, alignment, bytes ? bytes : 1) != 0) {
    data = nullptr;
  }
  if (data == nullptr) throw std::bad_alloc();
  const int64_t now = live += static_cast<int64_t>(malloc_usable_size(data));
  int64_t before = most.load(std::memory_order_relaxed);
  while (now > before && !most.compare_exchange_weak(before, now)) {
  }
  return data;
}

void give(void* data) {
  if (data == nullptr) return;
  live -= static_cast<int64_t>(malloc_usable_size(data));
  std::free(data);
}

}  // namespace

void* operator new(size_t bytes) { return take(bytes, 1); }
void* operator new[](size_t bytes) { return take(bytes, 1); }
void* operator new(size_t bytes, std::align_val_t alignment) { return take(bytes, static_cast<size_t>(alignment)); }
void* operator new[](size_t bytes, std::align_val_t alignment) { return take(bytes, static_cast<size_t>(alignment)); }
void operator delete(void* data) noexcept { give(data); }
void operator delete[](void* data) noexcept { give(data); }
void operator delete(void* data, size_t) noexcept { give(data); }
void operator delete[](void* data, size_t) noexcept { give(data); }
void operator delete(void* data, std::align_val_t) noexcept { give(data); }
void operator delete[](void* data, std::align_val_t) noexcept { give(data); }
void operator delete(void* data, size_t, std::align_val_t) noexcept { give(data); }
void operator delete[](void* data, size_t, std::align_val_t) noexcept { give(data); }

namespace sluice::test {

uint64_t peak_bytes(const std::function<void()>& work) {
  const int64_t before = live;
  most = before;
  work();
  return static_cast<uint64_t>(most - before);
}

}  // namespace sluice::test
