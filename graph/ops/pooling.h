#pragma once
// Pooling over 1, 2 or 3 spatial dims of (N, C, spatial...), or of (C, spatial...) where torch allows it.
#include <span>
#include <utility>

#include "graph/op_def.h"
#include "graph/value.h"

namespace sluice::ops {

// kernel_size names the spatial dims (one entry each). Empty stride = kernel_size; empty padding = 0; empty dilation
// = 1.
struct PoolOptions {
  Ints kernel_size, stride = {}, padding = {};
  bool ceil_mode = false;
};
struct MaxPoolOptions : PoolOptions {
  Ints dilation = {};
};
struct AvgPoolOptions : PoolOptions {
  bool count_include_pad = true;
  int64_t divisor_override = 0;  // 0: none
};

// (values, indices int64 into the flattened spatial dims of the input), as torch.max_poolNd(return_indices=True).
std::pair<Value, Value> max_pool_with_indices(const Value& x, const MaxPoolOptions& options);
Value max_pool(const Value& x, const MaxPoolOptions& options);
Value avg_pool(const Value& x, const AvgPoolOptions& options);
// torch.adaptive_avg_poolNd / adaptive_max_poolNd: one entry of output_size per spatial dim; -1 keeps the input's.
Value adaptive_avg_pool(const Value& x, const Ints& output_size);
Value adaptive_max_pool(const Value& x, const Ints& output_size);
// With indices as max_pool_with_indices() gives them; x has a batch dim.
std::pair<Value, Value> adaptive_max_pool_with_indices(const Value& x, const Ints& output_size);
// torch.fractional_max_poolNd of x with a batch dim: where windows begin follows from `samples` (N, C, dims) in [0, 1).
std::pair<Value, Value> fractional_max_pool(const Value& x, const Ints& kernel_size, const Ints& output_size,
                                            const Value& samples);

std::span<const OpDef* const> pooling_ops();

}  // namespace sluice::ops
