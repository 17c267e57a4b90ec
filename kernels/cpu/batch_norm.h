#pragma once
// Batch norm by given statistics, per channel: what its own kernel and that of fused convolutions share.
#include <cmath>
#include <cstdint>

#include "kernels/cpu/numeric.h"

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

}  // namespace sluice::cpu
