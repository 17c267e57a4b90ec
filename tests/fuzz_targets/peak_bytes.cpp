#include "fuzz_targets/peak_bytes.h"

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "support/replace_new.h"

namespace {

std::atomic<int64_t> live{0}, most{0};

void* take(size_t bytes, size_t alignment) {
  void* data = nullptr;
  if (alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) {
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

SLUICE_REPLACE_NEW(take, give)

namespace sluice::test {

uint64_t peak_bytes(const std::function<void()>& work) {
  const int64_t before = live;
  most = before;
  work();
  return static_cast<uint64_t>(most - before);
}

}  // namespace sluice::test
