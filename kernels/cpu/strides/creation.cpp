// full and iota: tensors from attributes alone.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/families.h"
#include "kernels/cpu/strides/strided_copy.h"
#include "kernels/cpu/strides/tiles.h"
#include "kernels/kernel.h"

namespace sluice::cpu {
namespace {

class Full final : public PreparedKernel {
 public:
  Full(const TensorSpec& out, double value, int threads) : fill_(out, value), threads_(threads) {}
  void run(const KernelArgs& args) const override { fill_.run(args.outputs[0], threads_); }

 private:
  const StridedFill fill_;
  const int threads_;
};

class Iota final : public PreparedKernel {
 public:
  Iota(const TensorSpec& out, double start, double step)
      : start_(start),
        step_(step),
        n_(out.shape[0]),
        stride_(out.strides[0]),
        size_(static_cast<int64_t>(dtype_size(out.dtype))),
        integer_(!is_floating(out.dtype)),
        whole_(integer_ && is_exact(start) && is_exact(step) && is_exact(start + static_cast<double>(n_) * step)),
        store_(tile_store(integer_ ? TileType::kInt64 : TileType::kDouble, out.dtype)) {}

  void run(const KernelArgs& args) const override {
    double values[kTile];
    int64_t integers[kTile];
    const int64_t first = whole_ ? static_cast<int64_t>(start_) : 0, step = whole_ ? static_cast<int64_t>(step_) : 0;
    for (int64_t at = 0; at < n_; at += kTile) {
      const int64_t m = std::min(kTile, n_ - at);
      for (int64_t i = 0; i < m; ++i) {
        if (whole_) {
          integers[i] = first + (at + i) * step;
        } else {
          values[i] = start_ + static_cast<double>(at + i) * step_;
          if (integer_) integers[i] = static_cast<int64_t>(values[i]);
        }
      }
      const void* tile = integer_ ? static_cast<const void*>(integers) : values;
      store_(tile, static_cast<char*>(args.outputs[0]) + at * stride_ * size_, stride_, m);
    }
  }

 private:
  // A whole number, as which double counts exactly.
  static bool is_exact(double v) { return std::trunc(v) == v && std::abs(v) < 0x1p53; }

  const double start_, step_;
  const int64_t n_, stride_, size_;
  const bool integer_, whole_;  // whole_: of whole numbers
  const StoreFn store_;
};

plan::LayoutPreference layouts(const plan::KernelQuery&) { return {{}, {plan::Layout::kAny}}; }

}  // namespace

void add_creation_kernels(KernelTable& table) {
  table.add(DeviceKind::kCpu, {.op = "full",
                               .prepare =
                                   [](const plan::KernelQuery& q, const PrepareContext& context) {
                                     return std::make_unique<Full>(q.outputs.at(0), get_attr<double>(q.attrs, "value"),
                                                                   context.threads);
                                   },
                               .layouts = layouts});
  table.add(DeviceKind::kCpu, {.op = "iota",
                               .prepare =
                                   [](const plan::KernelQuery& q, const PrepareContext&) {
                                     return std::make_unique<Iota>(q.outputs.at(0), get_attr<double>(q.attrs, "start"),
                                                                   get_attr<double>(q.attrs, "step"));
                                   },
                               .layouts = layouts});
}

}  // namespace sluice::cpu
