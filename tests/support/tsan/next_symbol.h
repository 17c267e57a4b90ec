#pragma once
// For functions that stand in front of a library's, by their names, and tell ThreadSanitizer what orders what.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <cstdio>
#include <cstdlib>

namespace sluice::tsan {

// The library's own.
template <class Function>
Function* next(const char* symbol) {
  void* const found = dlsym(RTLD_NEXT, symbol);
  if (found != nullptr) return reinterpret_cast<Function*>(found);
  std::fprintf(stderr, "tests/support/tsan: no library has %s; has its version changed?\n", symbol);
  std::abort();
}

inline void release(const volatile void* of) { __tsan_release(const_cast<void*>(of)); }
inline void acquire(const volatile void* of) { __tsan_acquire(const_cast<void*>(of)); }
// Does what a counter of references does as it goes down.
inline void count(const volatile void* of) {
  release(of);
  acquire(of);
}

}  // namespace sluice::tsan
