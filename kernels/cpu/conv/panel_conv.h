#pragma once
// Convolutions of float32 that lies channels-last as products of matrices without copies of windows: a row of a window
// is contiguous there, and is multiplied with panels of weights. Compiled for each instruction set. No bit depends on
// how many images or threads there are.
#include <cstdint>

#include "kernels/cpu/conv/conv_common.h"

namespace sluice::cpu {

struct PanelConv : ConvImages {
  int64_t window_height = 1, window_width = 1;
  int64_t down = 1, across = 1;   // strides
  int64_t bottom = 0, right = 0;  // zeros behind x, as far as windows reach

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
