#pragma once
// Convolutions by Winograd's method (Lavin & Gray 2016): 3x3 windows at stride 1 over float32 that lies channels-last.
// Tiles of side x side results are computed from (side + 2) x (side + 2) transformed elements of x, each of which is
// multiplied by a matrix of transformed weights: 2.25 (side 2) or 4 (side 4) times fewer products than windows take.
// Compiled for each instruction set. No bit depends on threads, and of results and gradients of inputs none on how many
// images there are.
#include <cstdint>

#include "kernels/cpu/conv/conv_common.h"
#include "kernels/cpu/support/conv_geometry.h"

namespace sluice::cpu {

struct Winograd : ConvImages {          // x, too, has multiples of kConvPanel channels
  int side = 4;                         // 2 or 4
  ConvRole result = ConvRole::kOutput;  // kInput: x is the gradient of a convolution's result, and y that of its input

  int64_t places() const { return static_cast<int64_t>(side + 2) * (side + 2); }
  int64_t tiles_down() const { return (out_height + side - 1) / side; }
  int64_t tiles_across() const { return (out_width + side - 1) / side; }
  int64_t tiles() const { return images * tiles_down() * tiles_across(); }
  int64_t tiles_at_once() const;  // what the caches hold of the transformed
  uint64_t weight_bytes() const;  // transformed
  uint64_t workspace_bytes() const;
};

// Weights (out, in, 3, 3) transformed: weight_bytes(), aligned to 64 bytes.
void pack_weights(const Winograd& c, const float* w, float* transformed, int threads);
// workspace, here and below: workspace_bytes(), aligned to 64 bytes.
void convolve(const Winograd& c, const float* x, const float* transformed, const ConvFinish& finish, float* y,
              float* workspace, int threads);
// For kWeight: w, the gradient of the weight (out, in, 3, 3), from x and y, the gradient of the convolution's result.
void weight_gradient(const Winograd& c, const float* x, const float* y, float* w, float* workspace, int threads);

}  // namespace sluice::cpu
