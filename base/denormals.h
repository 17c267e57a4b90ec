#pragma once
// How the calling thread's float32 and float64 arithmetic treats denormal numbers, those below 2^-126 and 2^-1022. A
// thread starts with the mode of the thread that started it.
#include <cstdint>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace sluice {

// Whether this processor has a mode in which they are zero.
#if defined(__SSE2__) || defined(__aarch64__)
inline constexpr bool kFlushesDenormals = true;
#else
inline constexpr bool kFlushesDenormals = false;
#endif

// Denormal operands count as zero, and a result that would be denormal is zero.
inline bool flushes_denormals() noexcept {
#if defined(__SSE2__)
  return (_mm_getcsr() & 0x8040) == 0x8040;  // flush to zero, denormals are zero
#elif defined(__aarch64__)
  uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  return (control >> 24 & 1) != 0;
#else
  return false;
#endif
}

// Does nothing where there is no such mode.
inline void flush_denormals([[maybe_unused]] bool on) noexcept {
#if defined(__SSE2__)
  _mm_setcsr(on ? _mm_getcsr() | 0x8040U : _mm_getcsr() & ~0x8040U);
#elif defined(__aarch64__)
  uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  control = on ? control | uint64_t{1} << 24 : control & ~(uint64_t{1} << 24);
  asm volatile("msr fpcr, %0" ::"r"(control));
#endif
}

// A scope in which the calling thread flushes them if `on`, and otherwise does as it did before.
class DenormalScope {
 public:
  explicit DenormalScope(bool on) noexcept : changed_(on && !flushes_denormals()) {
    if (changed_) flush_denormals(true);
  }
  ~DenormalScope() {
    if (changed_) flush_denormals(false);
  }
  DenormalScope(const DenormalScope&) = delete;
  DenormalScope& operator=(const DenormalScope&) = delete;

 private:
  const bool changed_;
};

}  // namespace sluice
