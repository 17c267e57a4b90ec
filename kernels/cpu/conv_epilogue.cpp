#include "kernels/cpu/conv_epilogue.h"

#include "kernels/cpu/batch_norm.h"
#include "kernels/cpu/strided.h"
#include "kernels/cpu/support.h"

namespace sluice::cpu {

ConvEpilogue::ConvEpilogue(const plan::KernelQuery& query) : inputs(query.inputs), y(query.outputs[0]) {
  if (query.op != "fused_conv") return;
  norm = has_operand(inputs, kMean);
  residual = has_operand(inputs, kResidual);
  relu = get_attr<std::string>(query.attrs, "activation") == "relu";
  eps = get_attr<double>(query.attrs, "eps");
}

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

ConvEpilogue::Pass ConvEpilogue::loops(int threads) const {
  const int64_t channels = y.shape[1];
  int64_t positions = 1;
  for (int d = 2; d < y.shape.rank(); ++d) positions *= y.shape[d];
  struct Steps {
    int64_t channel, position;
  };
  const auto steps = [=](const TensorSpec& spec) {
    return is_channels_last(spec, "fused_conv") ? Steps{1, channels} : Steps{positions, 1};
  };
  const Steps to = steps(y), from = residual ? steps(inputs[kResidual]) : to;
  return dispatch_floating(y.dtype, "fused_conv", [&](auto t) -> Pass {
    using T = decltype(t);
    return [=, e = *this](void* result, const void* residual, const void* rows) {
      T* const out = static_cast<T*>(result);
      const T* const other = static_cast<const T*>(residual);
      const auto *mean = static_cast<const Compute<T>*>(rows), *scale = mean + channels, *shift = scale + channels;
      parallel_ranges(threads, e.y.shape[0] * channels, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t c = i % channels, image = (i - c) * positions;
          for (int64_t p = 0; p < positions; ++p) {
            T* const at = out + image + c * to.channel + p * to.position;
            Compute<T> v = load(*at);
            if (e.norm) v = (v - mean[c]) * scale[c] + shift[c];
            if (other) v += load(other[image + c * from.channel + p * from.position]);
            store(at, e.relu && v < 0 ? Compute<T>(0) : v);
          }
        }
      });
    };
  });
}

}  // namespace sluice::cpu
