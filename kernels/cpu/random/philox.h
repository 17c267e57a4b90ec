#pragma once
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), 64 words at a time.
#include <array>
#include <cmath>
#include <cstdint>

namespace sluice::cpu {

inline constexpr int64_t kPhiloxGroup = 64;  // words made together: 16 counters of 4

// The stream of 32-bit words of one random call: word i depends on (seed, step, salt, i) alone.
// Word i is word (i / 16) % 4 of the counter (i / 64) * 16 + i % 16.
struct PhiloxStream {
  // `state` is the op's first input; `lane` tells streams of one call apart.
  PhiloxStream(const int64_t* state, int64_t salt, uint32_t lane = 0);
  // Words [64 * group, 64 * group + 64).
  void words(int64_t group, uint32_t* out) const;
  // Words [begin, begin + n).
  void words_at(int64_t begin, int64_t n, uint32_t* out) const;

  uint32_t key[2];
  uint32_t mixed_high, salt, step;
};

// A random word below this is chosen, which happens with probability p.
inline uint64_t chosen_below(double p) { return static_cast<uint64_t>(std::llround(p * 0x1p32)); }
// The factor by which dropout() of probability p multiplies what it keeps.
inline double dropout_scale(double p) { return p < 1 ? 1 / (1 - p) : 0; }

}  // namespace sluice::cpu
