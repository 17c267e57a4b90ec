#pragma once
// Convolutions of float32 that lies channels-last as products of matrices without copies of windows: a row of a window
// is contiguous there, and is multiplied with panels of weights. Compiled for each instruction set. No sum depends on
// how many images or threads there are.
#include <cstdint>

#include "kernels/cpu/conv_finish.h"

namespace sluice::cpu {

struct PanelConv {
  static constexpr int64_t kPanel = 16;  // channels of y that are multiplied at a time; y has multiples of it

  int64_t images = 0;
  int64_t height = 0, width = 0, channels = 0;              // of x
  int64_t out_height = 0, out_width = 0, out_channels = 0;  // of y
  int64_t window_height = 1, window_width = 1;
  int64_t down = 1, across = 1;   // strides
  int64_t top = 0, left = 0;      // zeros before x
  int64_t bottom = 0, right = 0;  // and behind it, as far as windows reach

  bool padded() const { return top + left + bottom + right > 0; }
  int64_t padded_height() const { return top + height + bottom; }
  int64_t padded_width() const { return left + width + right; }
  uint64_t weight_bytes() const;  // in panels
  uint64_t workspace_bytes() const;
};

// Weights (out, in, height, width) in panels: weight_bytes(), aligned to 64 bytes.
void pack_weights(const PanelConv& c, const float* w, float* packed, int threads);
void convolve(const PanelConv& c, const float* x, const float* packed, const ConvFinish& finish, float* y,
              float* workspace, int threads);

}  // namespace sluice::cpu
