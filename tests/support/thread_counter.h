#pragma once
// Counts the threads that the process starts. Including this header is all it takes: it interposes pthread_create.
// Under a sanitizer, whose runtime does so itself, none are counted.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace sluice::test {

inline std::atomic<uint64_t> thread_count{0};
inline uint64_t threads_started() { return thread_count.load(std::memory_order_relaxed); }

}  // namespace sluice::test

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" __attribute__((used, visibility("default"))) inline int pthread_create(pthread_t* thread,
                                                                                  const pthread_attr_t* attributes,
                                                                                  void* (*run)(void*),
                                                                                  void* argument) noexcept {
  static const auto next = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  sluice::test::thread_count.fetch_add(1, std::memory_order_relaxed);
  return next(thread, attributes, run, argument);
}
#endif
