#pragma once
// Helpers that convolution and pooling share: windows that slide over the trailing (spatial) dims.
#include "graph/op_def.h"

namespace sluice::ops {

// One entry per spatial dim: empty = `fallback` everywhere, one entry = that everywhere. Throws otherwise.
Ints per_dim(const Ints& values, int dims, int64_t fallback, const char* where, const char* name);
// Throws unless `values` has `dims` entries of at least `least`.
void check_per_dim(const Ints& values, int dims, int64_t least, const char* where, const char* name);

// Positions of a window along one dim (torch's rule); with ceil_mode the last may overhang, but must start inside the
// input or its low padding.
int64_t window_count(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
                     bool ceil_mode = false);

// All windows of x (N, C, spatial...) as (N, C, K, P): K kernel elements, P positions (im2col); and its adjoint, which
// adds them up to a tensor of `shape`.
struct Windows {
  Ints kernel, stride, padding, dilation;
};
Value unfold(const Value& x, const Windows& windows);
Value fold(const Value& columns, const Shape& shape, const Windows& windows);

}  // namespace sluice::ops
