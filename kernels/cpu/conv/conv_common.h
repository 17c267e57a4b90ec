#pragma once
// Helpers that convolutions of our own share: float32 that lies channels-last, and what is done to a sum before it is
// written.
#include <cstdint>

namespace sluice::cpu {

inline constexpr int64_t kConvPanel = 16;  // channels of y that are multiplied at a time; there are multiples of it

struct ConvImages {
  int64_t images = 0;
  int64_t height = 0, width = 0, channels = 0;              // of x
  int64_t out_height = 0, out_width = 0, out_channels = 0;  // of y
  int64_t top = 0, left = 0;                                // zeros before x
};

// ((sum + bias - mean) * scale + shift) + residual, at least 0 with relu. Null: not that. A row has an element per
// channel; mean, scale and shift are given together; residual lies as the result, and may be it.
struct ConvFinish {
  const float *bias = nullptr, *mean = nullptr, *scale = nullptr, *shift = nullptr, *residual = nullptr;
  bool relu = false;
};

}  // namespace sluice::cpu
