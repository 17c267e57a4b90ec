#pragma once
// Batch norm: what its kernels' loops are given, and by given statistics what that of fused convolutions shares.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cpu/math/numeric.h"

namespace sluice::cpu {

// An operand with an element per channel, in x's dtype T or (wide: float32 beside 16-bit x) in that of statistics.
struct PerChannel {
  const void* values = nullptr;  // null: absent
  bool wide = false;

  template <class T>
  Compute<T> at(int64_t c, Compute<T> fallback) const {
    if (!values) return fallback;
    return wide ? static_cast<const Compute<T>*>(values)[c] : load(static_cast<const T*>(values)[c]);
  }
};

struct GivenStatistics {
  PerChannel mean, var, weight, bias;
  double eps = 0;
};

// y = (x - mean) * scale + shift: three rows of `channels` elements.
template <class T>
void inference_coefficients(const GivenStatistics& given, int64_t channels, Compute<T>* rows) {
  using C = Compute<T>;
  C *mean = rows, *scale = mean + channels, *shift = scale + channels;
  for (int64_t c = 0; c < channels; ++c) {
    mean[c] = given.mean.at<T>(c, C(0));
    scale[c] = given.weight.at<T>(c, C(1)) / std::sqrt(given.var.at<T>(c, C(1)) + static_cast<C>(given.eps));
    shift[c] = given.bias.at<T>(c, C(0));
  }
}

struct BatchNorm {
  int64_t rows = 0, channels = 0;
  int64_t positions = 0;  // of a channel of an image, where activations are contiguous; 0: they are channels-last
  int64_t parts = 1;      // ranges of rows that are summed apart
  // Operands in the statistics' dtype (float32 for 16-bit x) rather than x's.
  bool float_weight = false, float_bias = false, float_mean = false, float_var = false;
  double eps = 0;
  bool relu = false;
  double kept = 0, taken = 0, correction = 1;  // of the running statistics
  int threads = 1;

  int64_t part_begin(int64_t part) const { return rows * part / parts; }
  // Rows whose values fit the first-level cache.
  int64_t block() const { return std::clamp<int64_t>(4096 / std::max<int64_t>(channels, 1), 8, kMostRows); }
  // Workspace, in doubles per channel: two sums per part, and room for four rows of coefficients.
  uint64_t sums_bytes() const { return static_cast<uint64_t>((2 * parts + 8) * channels) * sizeof(double); }
  static constexpr int64_t kMostRows = 256;
};
// x, y, residual, grad, result, masked and dx are rows x channels; the others per channel. Unused pointers are null.
struct BatchNormPointers {
  const void *x, *grad, *mean, *var, *weight, *bias, *residual, *result, *running_mean, *running_var;
  void *y, *out_mean, *out_var, *d_weight, *d_bias, *masked, *next_mean, *next_var, *workspace;
};
using BatchNormFn = void (*)(const BatchNorm&, const BatchNormPointers&);

}  // namespace sluice::cpu
