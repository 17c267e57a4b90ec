#pragma once
// Images at other points than their pixels: resizing, and sampling at the points of a grid. As in torch; coordinates
// and weights are of float32, or of float64 where the image is.
#include <span>
#include <string>
#include <vector>

#include "base/attr.h"
#include "graph/op_def.h"
#include "graph/value.h"

namespace sluice::ops {

struct ResizeOptions {
  Ints size;                          // of the spatial dims
  std::vector<double> scale_factors;  // what coordinates are divided by; empty: what the sizes say
  std::string mode = "nearest";       // nearest, nearest-exact, linear, cubic; linear stands for bi- and trilinear
  bool align_corners = false;         // corners lie on the centres of the corner pixels
  bool antialias = false;             // linear and cubic: weights as wide as what is left out
};
// x (N, C, spatial...) at other spatial sizes, one dim after the other.
Value resize(const Value& x, const ResizeOptions& options);

// Points of `size` (N, C, spatial...) under the maps theta (N, d, d + 1) of [-1, 1]^d: (N, spatial..., d).
Value affine_grid(const Value& theta, const Ints& size, bool align_corners);

struct GridSampleOptions {
  std::string mode = "bilinear";       // bilinear, nearest, bicubic
  std::string padding_mode = "zeros";  // zeros, border, reflection
  bool align_corners = false;
};
// x (N, C, spatial...) at the points grid (N, out..., d), last dim of x first, -1 and 1 being its ends: (N, C, out...).
Value grid_sample(const Value& x, const Value& grid, const GridSampleOptions& options);

std::span<const OpDef* const> resampling_ops();

}  // namespace sluice::ops
