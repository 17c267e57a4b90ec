// flat_index: several indices as one, in one pass.
#include <algorithm>
#include <atomic>
#include <vector>

#include "kernels/cpu/families.h"
#include "kernels/cpu/math/vector_math.h"
#include "kernels/cpu/strides/strided.h"
#include "kernels/cpu/strides/tiles.h"
#include "kernels/cpu/support/support.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kFlatIndexGrain = 16384;

// flat = flat * size + index, which may count from the end; whether all of them are in the dim.
SLUICE_CLONES bool append(const int64_t* index, int64_t size, int64_t n, int64_t* flat) {
  uint64_t bad = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = index[i] + (index[i] < 0 ? size : 0);
    bad |= static_cast<uint64_t>(at) >= static_cast<uint64_t>(size) ? 1 : 0;
    flat[i] = flat[i] * size + at;
  }
  return bad == 0;
}

class FlatIndex final : public PreparedKernel {
 public:
  FlatIndex(const plan::KernelQuery& q, int threads)
      : sizes_(get_attr<Ints>(q.attrs, "sizes")), count_(numel(q.outputs.at(0).shape)), threads_(threads) {}

  void run(const KernelArgs& args) const override {
    auto* flat = static_cast<int64_t*>(args.outputs[0]);
    std::atomic<bool> bad{false};
    parallel_ranges(threads_, count_, kFlatIndexGrain, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; at += kTile) {
        const int64_t n = std::min(kTile, end - at);
        std::fill(flat + at, flat + at + n, int64_t{0});
        for (size_t k = 0; k < sizes_.size(); ++k)
          if (!append(indices(args, k) + at, sizes_[k], n, flat + at)) bad.store(true, std::memory_order_relaxed);
      }
    });
    if (bad.load(std::memory_order_relaxed)) refuse(args);
  }

 private:
  static const int64_t* indices(const KernelArgs& args, size_t k) {
    return static_cast<const int64_t*>(args.inputs[k]);
  }

  void refuse(const KernelArgs& args) const {
    for (size_t k = 0; k < sizes_.size(); ++k)
      for (int64_t i = 0; i < count_; ++i) {
        const int64_t at = indices(args, k)[i], n = sizes_[k];
        SLUICE_CHECK_KIND(kIndex, at >= -n && at < n,
                          "index: index out of range: {} is out of bounds for dimension {} with size {}; must be at "
                          "least {} and below {}",
                          at, k, n, -n, n);
      }
  }

  const Ints sizes_;
  const int64_t count_;
  const int threads_;
};

}  // namespace

void add_flat_index_kernels(KernelTable& table) {
  table.add(DeviceKind::kCpu, {.op = "flat_index",
                               .prepare = [](const plan::KernelQuery& q,
                                             const PrepareContext& context) -> std::unique_ptr<PreparedKernel> {
                                 return std::make_unique<FlatIndex>(q, context.threads);
                               }});
}

}  // namespace sluice::cpu
