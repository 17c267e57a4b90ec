#pragma once
// Counts the heap allocations of the process, to hold "no allocation in steady state". Including this header is all
// it takes: it interposes malloc and its kin (operator new ends there); under a sanitizer it uses the runtime's hooks.
#include <atomic>
#include <cstddef>
#include <cstdint>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLUICE_TEST_SANITIZED 1
// This is the sanitizers' allocator interface, whose header the compiler does not always ship.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void*, size_t),
                                                         void (*on_free)(const volatile void*));
#endif

namespace sluice::test {

inline std::atomic<uint64_t> allocation_count{0};
inline thread_local constinit uint64_t thread_allocation_count = 0;

// Allocations of all threads since the process started.
inline uint64_t allocations() { return allocation_count.load(std::memory_order_relaxed); }
// Allocations of this thread.
inline uint64_t thread_allocations() { return thread_allocation_count; }

namespace detail {
inline void count_allocation() {
  allocation_count.fetch_add(1, std::memory_order_relaxed);
  ++thread_allocation_count;
}
}  // namespace detail

#ifdef SLUICE_TEST_SANITIZED
namespace detail {
inline void on_malloc(const volatile void*, size_t) { count_allocation(); }
inline void on_free(const volatile void*) {}
inline const int kHooked = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
}  // namespace detail
#endif

}  // namespace sluice::test

#ifndef SLUICE_TEST_SANITIZED
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* data, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

__attribute__((used)) inline void* malloc(size_t bytes) noexcept {
  sluice::test::detail::count_allocation();
  return __libc_malloc(bytes);
}
__attribute__((used)) inline void* calloc(size_t count, size_t bytes) noexcept {
  sluice::test::detail::count_allocation();
  return __libc_calloc(count, bytes);
}
__attribute__((used)) inline void* realloc(void* data, size_t bytes) noexcept {
  sluice::test::detail::count_allocation();
  return __libc_realloc(data, bytes);
}
__attribute__((used)) inline void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  sluice::test::detail::count_allocation();
  return __libc_memalign(alignment, bytes);
}
__attribute__((used)) inline int posix_memalign(void** data, size_t alignment, size_t bytes) noexcept {
  sluice::test::detail::count_allocation();
  *data = __libc_memalign(alignment, bytes);
  return *data == nullptr ? 12 /* ENOMEM */ : 0;
}
}
#endif
