#pragma once
// Gray pixels of coloured ones, by Pillow's weights.
#include <cstdint>

namespace sluice::cpu {

// A byte per pixel, of rows with four. They may be the same memory.
inline void gray_row(const uint8_t* pixels, int64_t width, uint8_t* gray) {
  for (int64_t x = 0; x < width; ++x) {
    const uint8_t* const pixel = pixels + 4 * x;
    gray[x] = static_cast<uint8_t>((pixel[0] * 19595 + pixel[1] * 38470 + pixel[2] * 7471 + 0x8000) >> 16);
  }
}

}  // namespace sluice::cpu
