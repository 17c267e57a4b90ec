// argmax, argmin, cumsum: one pass along an axis in its logical order.
#include <algorithm>
#include <type_traits>

#include "kernels/cpu/math/numeric.h"
#include "kernels/cpu/reduction/folds.h"
#include "kernels/cpu/reduction/reduction.h"
#include "kernels/cpu/strides/tiles.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kScanGrain = 16384;  // input elements worth a thread
constexpr int64_t kTogetherLines = 4;  // running sums taken side by side

template <class T>
class ArgExtremum final : public PreparedKernel {
 public:
  ArgExtremum(const plan::KernelQuery& q, const ReductionAxes& axes, bool maximum, int threads)
      : maximum_(maximum),
        threads_(threads),
        outputs_(axes.kept),
        reduced_(axes.reduced_in_order),
        in_size_(dtype_size(q.inputs[0].dtype)),
        load_(tile_load(q.inputs[0].dtype, tile_type(q.inputs[0].dtype))),
        extremum_(folds_of<T>(maximum ? ReductionKind::kMax : ReductionKind::kMin).run),
        side_by_side_(outputs_.inner_stride(kIn) == 1 && outputs_.inner() > 1 && reduced_.inner_stride(0) != 1) {}

  void run(const KernelArgs& args) const override {
    const char* x = static_cast<const char*>(args.inputs[0]);
    int64_t* y = static_cast<int64_t*>(args.outputs[0]);
    const int64_t grain = std::max<int64_t>(kScanGrain / std::max<int64_t>(reduced_.size(), 1), 1);
    parallel_ranges(threads_, outputs_.size(), grain, [&](int64_t begin, int64_t end) {
      outputs_.for_segments(begin, end, [&](const auto& offsets, int64_t n) {
        const int64_t step = side_by_side_ ? kTile : 1;
        for (int64_t i = 0; i < n; i += step) {
          const char* from = x + (offsets[kIn] + i * outputs_.inner_stride(kIn)) * in_size_;
          int64_t* to = y + offsets[kOut] + i * outputs_.inner_stride(kOut);
          if (side_by_side_)
            find_side_by_side(from, to, std::min(kTile, n - i));
          else
            *to = find(from);
        }
      });
    });
  }

 private:
  static constexpr int kOut = ReductionAxes::kOut, kIn = ReductionAxes::kIn;

  int64_t find(const char* x) const {
    T space[kTile];
    T best{};
    int64_t best_at = -1, at = 0;
    reduced_.for_segments(0, reduced_.size(), [&](const auto& offsets, int64_t n) {
      const int64_t stride = reduced_.inner_stride(0);
      for (int64_t done = 0; done < n; done += kTile) {
        const int64_t m = std::min(kTile, n - done);
        load_(x + (offsets[0] + done * stride) * in_size_, stride, space, m);
        const T top = extremum_(space, m);
        if (best_at < 0 || beats(top, best)) {
          int64_t i = 0;
          while (top == top ? space[i] != top : space[i] == space[i]) ++i;
          best = top, best_at = at + i;
        }
        at += m;
      }
    });
    return best_at;
  }

  // The first NaN wins over everything.
  bool beats(T v, T best) const { return (best == best) & ((v != v) | (maximum_ ? v > best : v < best)); }

  // The same for neighbouring outputs, whose elements lie side by side.
  void find_side_by_side(const char* x, int64_t* to, int64_t outputs) const {
    T space[kTile], best[kTile];
    int64_t places[kTile] = {}, at = 0;
    reduced_.for_segments(0, reduced_.size(), [&](const auto& offsets, int64_t n) {
      for (int64_t k = 0; k < n; ++k, ++at) {
        load_(x + (offsets[0] + k * reduced_.inner_stride(0)) * in_size_, 1, space, outputs);
        if (at == 0) std::copy(space, space + outputs, best);
        for (int64_t i = 0; i < outputs; ++i) {
          const bool wins = beats(space[i], best[i]);
          best[i] = wins ? space[i] : best[i];
          places[i] = wins ? at : places[i];
        }
      }
    });
    for (int64_t i = 0; i < outputs; ++i) to[i * outputs_.inner_stride(kOut)] = places[i];
  }

  const bool maximum_;
  const int threads_;
  const LoopNest outputs_, reduced_;
  const int64_t in_size_;
  const LoadFn load_;
  T (*const extremum_)(const T* x, int64_t n);
  const bool side_by_side_;
};

// The type in which running sums of T are made.
template <class T>
using TotalOf = std::conditional_t<kIsComplex<T>, std::complex<double>,
                                   std::conditional_t<std::is_same_v<T, int64_t>, uint64_t, double>>;

template <class T>
class CumSum final : public PreparedKernel {
 public:
  CumSum(const plan::KernelQuery& q, const LoopNest& lines, const Strides& steps, int64_t length, int threads)
      : lines_(lines),
        in_step_(steps[0]),
        out_step_(steps[1]),
        length_(length),
        threads_(threads),
        in_size_(dtype_size(q.inputs[0].dtype)),
        out_size_(dtype_size(q.outputs[0].dtype)),
        load_(tile_load(q.inputs[0].dtype, tile_type(q.inputs[0].dtype))),
        store_(tile_store(tile_type(q.inputs[0].dtype), q.outputs[0].dtype)) {}

  void run(const KernelArgs& args) const override {
    const char* x = static_cast<const char*>(args.inputs[0]);
    char* y = static_cast<char*>(args.outputs[0]);
    const int64_t grain = std::max<int64_t>(kScanGrain / std::max<int64_t>(length_, 1), 1);
    parallel_ranges(threads_, lines_.size(), grain, [&](int64_t begin, int64_t end) {
      lines_.for_segments(begin, end, [&](const auto& offsets, int64_t n) {
        const bool neighbours = lines_.inner_stride(0) == 1 && lines_.inner_stride(1) == 1 && n > 1;
        for (int64_t i = 0, m = 0; i < n; i += m) {
          const char* from = x + (offsets[0] + i * lines_.inner_stride(0)) * in_size_;
          char* to = y + (offsets[1] + i * lines_.inner_stride(1)) * out_size_;
          m = neighbours ? std::min(kTile, n - i) : n - i < kTogetherLines ? 1 : kTogetherLines;
          if (neighbours)
            panel(from, to, m);
          else if (m == 1)
            sum_lines<1>(from, to);
          else
            sum_lines<kTogetherLines>(from, to);
        }
      });
    });
  }

 private:
  // Lines that follow each other: each addition waits for the one before it, but not for those of other lines.
  template <int kLines>
  void sum_lines(const char* x, char* y) const {
    using Total = TotalOf<T>;
    T space[kLines][kTile];
    Total totals[kLines] = {};
    for (int64_t at = 0; at < length_; at += kTile) {
      const int64_t m = std::min(kTile, length_ - at);
      for (int l = 0; l < kLines; ++l)
        load_(x + (l * lines_.inner_stride(0) + at * in_step_) * in_size_, in_step_, space[l], m);
      for (int64_t i = 0; i < m; ++i)
        for (int l = 0; l < kLines; ++l) space[l][i] = static_cast<T>(totals[l] += static_cast<Total>(space[l][i]));
      for (int l = 0; l < kLines; ++l)
        store_(space[l], y + (l * lines_.inner_stride(1) + at * out_step_) * out_size_, out_step_, m);
    }
  }

  // Neighbouring lines, side by side.
  void panel(const char* x, char* y, int64_t lines) const {
    using Total = TotalOf<T>;
    T space[kTile];
    Total totals[kTile] = {};
    for (int64_t i = 0; i < length_; ++i) {
      load_(x + i * in_step_ * in_size_, 1, space, lines);
      for (int64_t k = 0; k < lines; ++k) {
        totals[k] += static_cast<Total>(space[k]);
        space[k] = static_cast<T>(totals[k]);
      }
      store_(space, y + i * out_step_ * out_size_, 1, lines);
    }
  }

  const LoopNest lines_;
  const int64_t in_step_, out_step_, length_;
  const int threads_;
  const int64_t in_size_, out_size_;
  const LoadFn load_;
  const StoreFn store_;
};

}  // namespace

PrepareFn prepare_arg_extremum(bool maximum) {
  return [maximum](const plan::KernelQuery& q, const PrepareContext& context) -> std::unique_ptr<PreparedKernel> {
    const ReductionAxes axes = reduction_axes(q);
    switch (tile_type(q.inputs[0].dtype)) {
      case TileType::kFloat: return std::make_unique<ArgExtremum<float>>(q, axes, maximum, context.threads);
      case TileType::kDouble: return std::make_unique<ArgExtremum<double>>(q, axes, maximum, context.threads);
      case TileType::kComplexFloat:
      case TileType::kComplexDouble:
        fail(ErrorKind::kUnsupported, "{}: no cpu kernel for {}; complex numbers have no order", q.op,
             dtype_name(q.inputs[0].dtype));
      default: return std::make_unique<ArgExtremum<int64_t>>(q, axes, maximum, context.threads);
    }
  };
}

PrepareFn prepare_cumsum() {
  return [](const plan::KernelQuery& q, const PrepareContext& context) -> std::unique_ptr<PreparedKernel> {
    const TensorSpec &in = q.inputs.at(0), &out = q.outputs.at(0);
    Shape lines = in.shape;
    int64_t length = 1;
    Strides steps{0, 0};
    if (in.shape.rank() > 0) {
      const int dim = normalize_axis(get_attr<int64_t>(q.attrs, "dim"), in.shape.rank(), "cumsum");
      length = in.shape[dim];
      steps = {in.strides[dim], out.strides[dim]};
      lines[dim] = 1;
    }
    const std::array<Strides, 2> strides = {in.strides, out.strides};
    const LoopNest nest(lines, strides);
    switch (tile_type(in.dtype)) {
      case TileType::kFloat: return std::make_unique<CumSum<float>>(q, nest, steps, length, context.threads);
      case TileType::kDouble: return std::make_unique<CumSum<double>>(q, nest, steps, length, context.threads);
      case TileType::kComplexFloat:
        return std::make_unique<CumSum<std::complex<float>>>(q, nest, steps, length, context.threads);
      case TileType::kComplexDouble:
        return std::make_unique<CumSum<std::complex<double>>>(q, nest, steps, length, context.threads);
      default: return std::make_unique<CumSum<int64_t>>(q, nest, steps, length, context.threads);
    }
  };
}

}  // namespace sluice::cpu
