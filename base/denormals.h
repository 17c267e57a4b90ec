#pragma once
// How the calling thread's float32 and float64 arithmetic treats denormal numbers, those below 2^-126 and 2^-1022. A
// thread starts with the mode of the thread that started it.
#include <cstdint>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace sluice {

// kFlushBits are those of the control register that make denormals zero; 0: this processor always keeps them.
#if defined(__SSE2__)
inline constexpr uint64_t kFlushBits = 0x8040;  // flush to zero, denormals are zero
inline uint64_t float_control() noexcept { return _mm_getcsr(); }
inline void set_float_control(uint64_t control) noexcept { _mm_setcsr(static_cast<unsigned>(control)); }
#elif defined(__aarch64__)
inline constexpr uint64_t kFlushBits = uint64_t{1} << 24;
inline uint64_t float_control() noexcept {
  uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  return control;
}
inline void set_float_control(uint64_t control) noexcept { asm volatile("msr fpcr, %0" ::"r"(control)); }
#else
inline constexpr uint64_t kFlushBits = 0;
inline uint64_t float_control() noexcept { return 0; }
inline void set_float_control(uint64_t) noexcept {}
#endif
inline constexpr bool kFlushesDenormals = kFlushBits != 0;

// Denormal operands count as zero, and a result that would be denormal is zero.
inline bool flushes_denormals() noexcept { return kFlushesDenormals && (float_control() & kFlushBits) == kFlushBits; }

// Does nothing where there is no such mode.
inline void flush_denormals(bool on) noexcept {
  const uint64_t control = float_control();
  set_float_control(on ? control | kFlushBits : control & ~kFlushBits);
}

// A scope in which the calling thread flushes them if `on`, and otherwise does as it did before. Its end brings back
// the bits that were set, which may be one of two.
class DenormalScope {
 public:
  explicit DenormalScope(bool on) noexcept : on_(on), before_(on ? float_control() & kFlushBits : 0) {
    if (on_) flush_denormals(true);
  }
  ~DenormalScope() {
    if (on_) set_float_control((float_control() & ~kFlushBits) | before_);
  }
  DenormalScope(const DenormalScope&) = delete;
  DenormalScope& operator=(const DenormalScope&) = delete;

 private:
  const bool on_;
  const uint64_t before_;
};

}  // namespace sluice
