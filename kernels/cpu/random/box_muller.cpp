#include "kernels/cpu/random/box_muller.h"

namespace sluice::cpu {

SLUICE_CLONES void normal_by_16(float* samples, int64_t sixteens, float mean, float deviation) {
  for (float* x = samples; x != samples + 16 * sixteens; x += 16) {
    for (int j = 0; j < 8; ++j) {
      float cosine, sine;
      box_muller(1.f - x[j], static_cast<int32_t>(x[j + 8] * 0x1p24f), cosine, sine);
      x[j] = mean + deviation * cosine;
      x[j + 8] = mean + deviation * sine;
    }
  }
}

}  // namespace sluice::cpu
