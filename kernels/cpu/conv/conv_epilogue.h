#pragma once
// The end of fused_conv, which changes a convolution's result before it is written: batch norm by given statistics,
// plus a residual, an activation.
#include <functional>

#include "kernels/conv_tail.h"
#include "kernels/cpu/onednn/onednn.h"
#include "kernels/kernel.h"
#include "plan/query.h"

namespace sluice::cpu {

struct ConvEpilogue : ConvTail {
  explicit ConvEpilogue(const plan::KernelQuery& query);  // of conv, which has none, or fused_conv

  std::vector<TensorSpec> inputs;
  TensorSpec y;

  // Batch norm's coefficients: three rows of a float per channel (double, of float64).
  uint64_t row_bytes() const;
  void write_rows(const KernelArgs& args, void* rows) const;

  // For oneDNN, which adds to what it finds where its result goes: the residual. Without relu (relu_in_place.h).
  dnnl::post_ops post_ops() const;
  std::vector<onednn::Primitive::Arg> row_args() const;  // what post_ops() takes the rows as

  // All of it as one pass over a product to a result that lies like it, or channels-last where the product is in blocks
  // of channels. It may be the residual, which lies as its type says, or a product that lies like it.
  enum class Product { kContiguous, kChannelsLast, kChannelBlocks };
  using Pass = std::function<void(const void* product, void* result, const void* residual, const void* rows)>;
  Pass pass(Product product, int threads) const;
};

}  // namespace sluice::cpu
