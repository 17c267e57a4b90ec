// fold_weight and fold_bias: what a convolution or product multiplies by and adds where a norm is a part of it.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/families.h"
#include "kernels/cpu/math/numeric.h"
#include "kernels/cpu/strides/strided.h"
#include "kernels/cpu/support/support.h"

namespace sluice::cpu {
namespace {

using plan::KernelQuery;

namespace fold_weight_input {
enum { kWeight, kVar, kScale };
}
namespace fold_bias_input {
enum { kBias, kMean, kVar, kScale, kShift, kWeight };
}

struct NormFold {
  explicit NormFold(const KernelQuery& q)
      : inputs(q.inputs),
        y(q.outputs[0]),
        eps(get_attr<double>(q.attrs, "eps")),
        factor(get_attr<double>(q.attrs, "factor")),
        axis(get_attr<int64_t>(q.attrs, "axis")),
        groups(get_attr<int64_t>(q.attrs, "groups")) {}

  bool has(size_t i) const { return has_operand(inputs, i); }
  // An operand or the result is of float64, and so is the arithmetic.
  bool wide() const {
    return y.dtype == DType::kFloat64 || std::any_of(inputs.begin(), inputs.end(), [](const TensorSpec& spec) {
             return spec.shape.rank() > 0 && spec.dtype == DType::kFloat64;
           });
  }
  // factor * scale / sqrt(var + eps) of a channel, as batch norm by given statistics computes it.
  template <class C>
  C coefficient(const KernelArgs& args, int var, int scale, int64_t channel) const {
    if (!has(static_cast<size_t>(var))) return static_cast<C>(factor);
    const C of_scale = at<C>(args, scale, channel, C(1));
    return of_scale / std::sqrt(at<C>(args, var, channel, C(1)) + static_cast<C>(eps)) * static_cast<C>(factor);
  }
  // An element of an input, or what stands for it where the input is absent.
  template <class C>
  C at(const KernelArgs& args, int input, int64_t i, C absent) const {
    const auto number = static_cast<size_t>(input);
    if (!has(number)) return absent;
    return dispatch_floating(inputs[number].dtype, "fold", [&](auto t) {
      return static_cast<C>(load(static_cast<const decltype(t)*>(args.inputs[number])[i]));
    });
  }
  template <class T, class C>
  static void put(void* to, int64_t i, C value) {
    store(static_cast<T*>(to) + i, static_cast<Compute<T>>(value));
  }

  std::vector<TensorSpec> inputs;
  TensorSpec y;
  double eps, factor;
  int64_t axis, groups;
};

// Rows of a weight: so many columns of so many elements. The channel of column `c` of row `r` along axis 1 is
// first(r) + c.
struct FoldedRows {
  FoldedRows(const Shape& weight, int64_t groups)
      : rows(weight[0]), columns(weight[1]), rows_of_group(std::max<int64_t>(weight[0] / groups, 1)) {
    for (int i = 2; i < weight.rank(); ++i) rest *= weight[i];
  }
  int64_t first(int64_t row) const { return row / rows_of_group * columns; }
  int64_t length() const { return columns * rest; }

  int64_t rows, columns, rows_of_group, rest = 1;
};

constexpr int64_t kFoldGrain = 16384;  // elements worth a thread

template <class C>
void run_fold_weight(const NormFold& fold, const KernelArgs& args, int threads) {
  namespace in = fold_weight_input;
  const FoldedRows w(fold.y.shape, fold.groups);
  auto* const s = static_cast<C*>(args.workspace);
  const int64_t channels = fold.axis == 0 ? w.rows : w.columns * fold.groups;
  for (int64_t c = 0; c < channels; ++c) s[c] = fold.coefficient<C>(args, in::kVar, in::kScale, c);
  dispatch_floating(fold.inputs[in::kWeight].dtype, "fold_weight", [&](auto from) {
    const auto* const weight = static_cast<const decltype(from)*>(args.inputs[in::kWeight]);
    dispatch_floating(fold.y.dtype, "fold_weight", [&](auto to) {
      const int64_t grain = std::max<int64_t>(kFoldGrain / std::max<int64_t>(w.length(), 1), 1);
      parallel_ranges(threads, w.rows, grain, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          int64_t i = r * w.length();
          for (int64_t c = 0; c < w.columns; ++c) {
            const C by = s[fold.axis == 0 ? r : w.first(r) + c];
            for (const int64_t last = i + w.rest; i < last; ++i)
              NormFold::put<decltype(to)>(args.outputs[0], i, static_cast<C>(load(weight[i])) * by);
          }
        }
      });
    });
  });
}

template <class C>
C shift_in_front(const NormFold& fold, const KernelArgs& args, int64_t channel) {
  namespace in = fold_bias_input;
  return fold.at<C>(args, in::kShift, channel, C(0)) -
         fold.at<C>(args, in::kMean, channel, C(0)) * fold.coefficient<C>(args, in::kVar, in::kScale, channel);
}

template <class C>
void run_fold_bias(const NormFold& fold, const KernelArgs& args, int threads) {
  namespace in = fold_bias_input;
  if (!fold.has(in::kWeight)) {
    dispatch_floating(fold.y.dtype, "fold_bias", [&](auto to) {
      for (int64_t c = 0; c < fold.y.shape[0]; ++c) {
        const C centred = fold.at<C>(args, in::kBias, c, C(0)) - fold.at<C>(args, in::kMean, c, C(0));
        const C s = fold.coefficient<C>(args, in::kVar, in::kScale, c);
        const C shift = fold.at<C>(args, in::kShift, c, C(0)) * static_cast<C>(fold.factor);
        NormFold::put<decltype(to)>(args.outputs[0], c, centred * s + shift);
      }
    });
    return;
  }
  const FoldedRows w(fold.inputs[in::kWeight].shape, fold.groups);
  auto* const shift = static_cast<C*>(args.workspace);
  for (int64_t c = 0; c < w.columns * fold.groups; ++c) shift[c] = shift_in_front<C>(fold, args, c);
  dispatch_floating(fold.inputs[in::kWeight].dtype, "fold_bias", [&](auto from) {
    const auto* const weight = static_cast<const decltype(from)*>(args.inputs[in::kWeight]);
    dispatch_floating(fold.y.dtype, "fold_bias", [&](auto to) {
      const int64_t grain = std::max<int64_t>(kFoldGrain / std::max<int64_t>(w.length(), 1), 1);
      parallel_ranges(threads, w.rows, grain, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          double sum = 0;  // of as many products as an output of the convolution
          int64_t i = r * w.length();
          for (int64_t c = 0; c < w.columns; ++c)
            for (const int64_t last = i + w.rest; i < last; ++i)
              sum += static_cast<double>(static_cast<C>(load(weight[i])) * shift[w.first(r) + c]);
          NormFold::put<decltype(to)>(args.outputs[0], r, fold.at<C>(args, in::kBias, r, C(0)) + static_cast<C>(sum));
        }
      });
    });
  });
}

std::unique_ptr<PreparedKernel> prepare_fold_weight(const KernelQuery& q, const PrepareContext& context) {
  const FoldedRows w(q.outputs[0].shape, get_attr<int64_t>(q.attrs, "groups"));
  const auto channels = static_cast<uint64_t>(std::max(w.rows, w.columns * get_attr<int64_t>(q.attrs, "groups")));
  const int threads = threads_for(context, static_cast<double>(w.rows * w.length()));
  return make_kernel(channels * sizeof(double), [fold = NormFold(q), threads](const KernelArgs& args) {
    fold.wide() ? run_fold_weight<double>(fold, args, threads) : run_fold_weight<float>(fold, args, threads);
  });
}

std::unique_ptr<PreparedKernel> prepare_fold_bias(const KernelQuery& q, const PrepareContext& context) {
  uint64_t workspace = 0;
  int threads = 1;
  if (has_operand(q.inputs, fold_bias_input::kWeight)) {
    const auto groups = get_attr<int64_t>(q.attrs, "groups");
    const FoldedRows w(q.inputs[fold_bias_input::kWeight].shape, groups);
    workspace = static_cast<uint64_t>(w.columns * groups) * sizeof(double);
    threads = threads_for(context, static_cast<double>(w.rows * w.length()));
  }
  return make_kernel(workspace, [fold = NormFold(q), threads](const KernelArgs& args) {
    fold.wide() ? run_fold_bias<double>(fold, args, threads) : run_fold_bias<float>(fold, args, threads);
  });
}

}  // namespace

void add_folded_weights_kernels(KernelTable& table) {
  table.add(DeviceKind::kCpu, {.op = "fold_weight", .prepare = prepare_fold_weight});
  table.add(DeviceKind::kCpu, {.op = "fold_bias", .prepare = prepare_fold_bias});
}

}  // namespace sluice::cpu
