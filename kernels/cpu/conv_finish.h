#pragma once

namespace sluice::cpu {

// What a convolution of ours does to a sum before it is written, over float32 that lies channels-last:
// ((sum + bias - mean) * scale + shift) + residual, at least 0 with relu. Null: not that. A row has an element per
// channel; mean, scale and shift are given together; residual lies as the result, and may be it.
struct ConvFinish {
  const float *bias = nullptr, *mean = nullptr, *scale = nullptr, *shift = nullptr, *residual = nullptr;
  bool relu = false;
};

}  // namespace sluice::cpu
