#include "kernels/cpu/conv/conv_epilogue.h"

#include <algorithm>

#include "kernels/cpu/norm/batch_norm.h"
#include "kernels/cpu/strides/strided.h"
#include "kernels/cpu/strides/tiles.h"
#include "kernels/cpu/support/support.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kGrain = 16384;  // elements worth a thread

}  // namespace

ConvEpilogue::ConvEpilogue(const plan::KernelQuery& query)
    : ConvTail(query), inputs(query.inputs), y(query.outputs[0]) {}

uint64_t ConvEpilogue::row_bytes() const {
  return static_cast<uint64_t>(y.shape[1]) * std::max(dtype_size(y.dtype), sizeof(float));
}

void ConvEpilogue::write_rows(const KernelArgs& args, void* rows) const {
  const auto given = [&](size_t i) {
    return PerChannel{has_operand(inputs, i) ? args.inputs[i] : nullptr,
                      has_operand(inputs, i) && inputs[i].dtype != y.dtype};
  };
  const GivenStatistics statistics{given(kMean), given(kVar), given(kScale), given(kShift), eps};
  dispatch_floating(y.dtype, "fused_conv", [&](auto t) {
    using T = decltype(t);
    inference_coefficients<T>(statistics, y.shape[1], static_cast<Compute<T>*>(rows));
  });
}

dnnl::post_ops ConvEpilogue::post_ops() const {
  dnnl::post_ops ops;
  if (norm) {
    const onednn::Desc row = row_args()[0].desc;
    ops.append_binary(dnnl::algorithm::binary_sub, row);
    ops.append_binary(dnnl::algorithm::binary_mul, row);
    ops.append_binary(dnnl::algorithm::binary_add, row);
  }
  if (residual) ops.append_sum(1.0f);
  return ops;
}

std::vector<onednn::Primitive::Arg> ConvEpilogue::row_args() const {
  if (!norm) return {};
  Shape row(Ints(y.shape.rank(), 1));
  row[1] = y.shape[1];
  const onednn::Desc desc = onednn::desc(DType::kFloat32, row, contiguous_strides(row));
  std::vector<onednn::Primitive::Arg> args;
  for (int i = 0; i < 3; ++i) args.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(i) | DNNL_ARG_SRC_1, desc});
  return args;
}

ConvEpilogue::Pass ConvEpilogue::pass(Product lies, int threads) const {
  const bool channels_last = lies != Product::kContiguous, blocks = lies == Product::kChannelBlocks;
  const int64_t channels = y.shape[1], positions = numel(y.shape) / std::max<int64_t>(y.shape[0] * channels, 1);
  const bool same = !residual || is_channels_last(inputs[kResidual], "fused_conv") == channels_last;
  return dispatch_floating(y.dtype, "fused_conv", [&](auto t) -> Pass {
    using T = decltype(t);
    return [=, e = *this](const void* product, void* result, const void* residual, const void* rows) {
      const auto *mean = static_cast<const Compute<T>*>(rows), *scale = mean + channels, *shift = scale + channels;
      // A line of memory: a channel's positions, or a position's channels.
      const int64_t length = channels_last ? channels : positions, across = channels_last ? positions : channels;
      if (length == 0) return;
      const auto finish = [&](int64_t line, int64_t begin, int64_t n) {
        Compute<T> tile[kTile];
        T* const to = static_cast<T*>(result) + line * length + begin;
        if (blocks) {
          const int64_t image = line / positions, position = line % positions;
          const T* from = static_cast<const T*>(product) + image * length * positions + begin * positions +
                          position * onednn::kBlock;
          for (int64_t i = 0; i < n; i += onednn::kBlock, from += positions * onednn::kBlock)
            for (int64_t j = 0; j < onednn::kBlock; ++j) tile[i + j] = load(from[j]);
        } else {
          const T* const from = static_cast<const T*>(product) + line * length + begin;
          for (int64_t i = 0; i < n; ++i) tile[i] = load(from[i]);
        }
        if (e.norm && channels_last) {
          for (int64_t i = 0; i < n; ++i) tile[i] = (tile[i] - mean[begin + i]) * scale[begin + i] + shift[begin + i];
        } else if (e.norm) {
          const int64_t c = line % channels;
          for (int64_t i = 0; i < n; ++i) tile[i] = (tile[i] - mean[c]) * scale[c] + shift[c];
        }
        if (residual != nullptr && same) {
          const T* const other = static_cast<const T*>(residual) + line * length + begin;
          for (int64_t i = 0; i < n; ++i) tile[i] += load(other[i]);
        } else if (residual != nullptr) {  // whose lines are the columns of an image here
          const T* const other =
              static_cast<const T*>(residual) + line / across * across * length + begin * across + line % across;
          for (int64_t i = 0; i < n; ++i) tile[i] += load(other[i * across]);
        }
        for (int64_t i = 0; i < n; ++i) store(to + i, e.relu && tile[i] < 0 ? Compute<T>(0) : tile[i]);
      };
      parallel_ranges(threads, numel(e.y.shape) / length, std::max<int64_t>(kGrain / length, 1),
                      [&](int64_t first, int64_t last) {
                        for (int64_t line = first; line < last; ++line)
                          for (int64_t at = 0; at < length; at += kTile) finish(line, at, std::min(length - at, kTile));
                      });
    };
  });
}

}  // namespace sluice::cpu
