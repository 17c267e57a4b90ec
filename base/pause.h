#pragma once
// A pause between two looks of a thread that spins.

namespace sluice {

inline void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace sluice
