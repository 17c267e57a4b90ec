#pragma once
// Normal samples in pairs, of two uniform ones: a radius and an angle (Box and Muller, 1958). float32, of 24 bits each.
#include <cstdint>

#include "kernels/cpu/math/vector_trigonometry.h"

namespace sluice::cpu {

inline constexpr float kOf24Bits = 0x1p-24f;

// radius: in (0, 1], so that its logarithm is finite. angle: of a turn, in 1 / 2^24.
SLUICE_INLINE void box_muller(float radius, int32_t angle, float& cosine, float& sine) {
  constexpr int kQuarter = 22;  // bits of a quarter of a turn
  const int32_t quarters = (angle + (1 << (kQuarter - 1))) >> kQuarter;
  const float rest = static_cast<float>(angle - (quarters << kQuarter)) * (kOf24Bits * 6.28318531f);
  const float length = std::sqrt(-2.f * log_f(radius));
  cosine = length * sin_of_quarters(rest, quarters + 1);
  sine = length * sin_of_quarters(rest, quarters);
}

// Uniform samples in [0, 1) become normal ones, 16 after 16: of each the first 8 are radii, the others angles.
void normal_by_16(float* samples, int64_t sixteens, float mean, float deviation);

}  // namespace sluice::cpu
