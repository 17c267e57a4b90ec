// The sum or the mean of what elementwise ops make, which is never in memory. It is taken in the runs and parts in
// which a reduction takes it of memory, so that both give the same bits.
#include <algorithm>

#include "kernels/cpu/families.h"
#include "kernels/cpu/reduction/folds.h"
#include "kernels/cpu/reduction/reduction.h"
#include "kernels/cpu/rows/flat_program.h"
#include "kernels/cpu/support/support.h"

namespace sluice::cpu {
namespace {

template <class T>
class FusedReduction final : public PreparedKernel {
 public:
  FusedReduction(FlatProgram program, DType dtype, int64_t size, bool mean, int threads)
      : program_(std::move(program)),
        folds_(folds_of<T>(ReductionKind::kSum)),
        load_(tile_load(dtype, tile_type(dtype))),
        store_(tile_store(tile_type(dtype), dtype)),
        direct_(is_tile(dtype, tile_type(dtype))),
        mean_(mean),
        size_(size),
        parts_(size >= 2 * kChunk ? std::clamp<int64_t>(size / kChunk, 1, kMostChunks) : 1),
        threads_(threads) {}

  void run(const KernelArgs& args) const override {
    double sums[kMostChunks] = {};
    parallel_ranges(threads_, parts_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part)
        sums[part] = sum_of(args, size_ * part / parts_, size_ * (part + 1) / parts_);
    });
    double total = sums[0];
    for (int64_t part = 1; part < parts_; ++part) total += sums[part];
    const T result = static_cast<T>(mean_ ? total / static_cast<double>(size_) : total);
    store_(&result, args.outputs[0], 1, 1);
  }

 private:
  double sum_of(const KernelArgs& args, int64_t first, int64_t last) const {
    FlatProgram::Space space;
    alignas(64) T values[kRun];
    alignas(64) char stored[kTile * sizeof(T)];
    program_.begin(args.inputs, space);
    const int64_t most = direct_ ? kRun : kTile;
    double total = 0;
    for (int64_t at = first; at < last; at += most) {
      const int64_t n = std::min(most, last - at);
      for (int64_t done = 0; done < n; done += kTile) {
        const int64_t m = std::min(kTile, n - done);
        program_.make(space, at + done, m, direct_ ? static_cast<void*>(values + done) : stored);
        if (!direct_) load_(stored, 1, values + done, m);
      }
      total = add_run(total, values, n, direct_ && last - first <= kNarrow);
    }
    return total;
  }

  double add_run(double total, const T* values, int64_t n, bool narrow) const {
    if (narrow) {
      T sum = 0;
      folds_.rows(values, n, n, &sum, 1);
      return total + static_cast<double>(sum);
    }
    if (n >= kShort) return total + static_cast<double>(folds_.run(values, n));
    for (int64_t i = 0; i < n; ++i) total += static_cast<double>(values[i]);
    return total;
  }

  const FlatProgram program_;
  const Folds<T> folds_;
  const LoadFn load_;
  const StoreFn store_;
  const bool direct_, mean_;
  const int64_t size_, parts_;
  const int threads_;
};

std::unique_ptr<PreparedKernel> prepare_fused_reduction(const plan::KernelQuery& q, const PrepareContext& context) {
  const AttrGraph& body = get_attr<AttrGraph>(q.attrs, "body");
  check_attr_graph(body, q.inputs.size(), 1);
  Shape shape;
  std::vector<DType> dtypes;
  std::vector<bool> is_number;
  for (const TensorSpec& in : q.inputs) {
    dtypes.push_back(in.dtype);
    is_number.push_back(in.shape.rank() == 0);
    if (in.shape.rank() > 0) shape = in.shape;
  }
  for (const TensorSpec& in : q.inputs)
    SLUICE_CHECK_KIND(kUnsupported, in.shape.rank() == 0 || in.shape == shape,
                      "fused_reduce: operands of {} and of {}; must be of one shape, or one element", in.shape.str(),
                      shape.str());
  FlatProgram program("fused_reduce", body, dtypes, std::move(is_number));
  const DType dtype = q.outputs.at(0).dtype;
  const bool mean = get_attr<std::string>(q.attrs, "reduction") == "mean";
  const int threads = context.threads;
  if (tile_type(dtype) == TileType::kDouble)
    return std::make_unique<FusedReduction<double>>(std::move(program), dtype, numel(shape), mean, threads);
  SLUICE_CHECK_KIND(kUnsupported, tile_type(dtype) == TileType::kFloat,
                    "fused_reduce: no cpu kernel for {}; cast it first", dtype_name(dtype));
  return std::make_unique<FusedReduction<float>>(std::move(program), dtype, numel(shape), mean, threads);
}

}  // namespace

void add_fused_reduction_kernel(KernelTable& table) {
  table.add(DeviceKind::kCpu, {.op = "fused_reduce", .prepare = prepare_fused_reduction});
}

}  // namespace sluice::cpu
