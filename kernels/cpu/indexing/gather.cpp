// gather: every element of the output has an index of its own.
#include <atomic>
#include <cstring>

#include "kernels/cpu/families.h"
#include "kernels/cpu/indexing/indices.h"
#include "kernels/cpu/math/numeric.h"
#include "kernels/cpu/support/support.h"

namespace sluice::cpu {
namespace {

// Operands are walked together: the index, the input without its stride along `dim`, and the output.
class Gather final : public PreparedKernel {
 public:
  Gather(const plan::KernelQuery& q, int threads)
      : dim_(indexed_axis(q)),
        indices_(q, dim_),
        size_(dtype_size(q.outputs[0].dtype)),
        step_(q.inputs[0].strides[dim_]),
        threads_(threads),
        nest_(make_nest(q)),
        rows_(rows_of(nest_)),
        by_rows_(nest_.outer_rank() > 0 && nest_.inner() <= kTile),
        lines_(nest_.outer_rank() > 0 && nest_.inner_stride(0) == 0 && nest_.inner_stride(1) == 1 &&
               nest_.inner_stride(2) == 1) {}

  void run(const KernelArgs& args) const override {
    if (nest_.size() == 0) return;
    // Read once: indices are checked as they are used.
    std::atomic<bool> bad{false};
    const bool rows = by_rows_ || lines_;
    const int64_t grain = rows ? std::max<int64_t>(kIndexingGrain / nest_.inner(), 1) : kIndexingGrain;
    parallel_ranges(threads_, rows ? rows_.size() : nest_.size(), grain, [&](int64_t begin, int64_t end) {
      const bool valid =
          lines_ ? copy_lines(args, begin, end)
                 : with_element_of_size(size_, [&](auto e) { return gather<decltype(e)>(args, begin, end); });
      if (!valid) bad.store(true, std::memory_order_relaxed);
    });
    if (bad.load(std::memory_order_relaxed)) indices_.check(args.inputs[1]);
  }

 private:
  LoopNest make_nest(const plan::KernelQuery& q) const {
    const std::array<Strides, 3> strides = {q.inputs[1].strides, without_axis(q.inputs[0].strides, dim_),
                                            q.outputs[0].strides};
    return LoopNest::in_order(q.inputs[1].shape, strides);
  }

  // The axes around the innermost one.
  static LoopNest rows_of(const LoopNest& nest) {
    Shape shape;
    std::array<Strides, 3> strides;
    for (int axis = 0; axis < nest.outer_rank(); ++axis) {
      shape.push_back(nest.outer_dim(axis));
      for (int k = 0; k < 3; ++k) strides[k].push_back(nest.outer_stride(k, axis));
    }
    return LoopNest::in_order(shape, strides);
  }

  template <class E>
  bool gather(const KernelArgs& args, int64_t begin, int64_t end) const {
    const E* x = static_cast<const E*>(args.inputs[0]);
    E* y = static_cast<E*>(args.outputs[0]);
    int64_t space[kTile];
    bool valid = true;
    if (!by_rows_) {
      nest_.for_segments(begin, end, [&](const auto& at, int64_t n) {
        valid &= gather_row(args.inputs[1], at[0], x + at[1], y + at[2], n, space);
      });
      return valid;
    }
    rows_.for_segments(begin, end, [&](const auto& at, int64_t rows) {
      for (int64_t r = 0; r < rows; ++r)
        valid &= gather_row(args.inputs[1], at[0] + r * rows_.inner_stride(0), x + at[1] + r * rows_.inner_stride(1),
                            y + at[2] + r * rows_.inner_stride(2), nest_.inner(), space);
    });
    return valid;
  }

  // Along the innermost axis. Leaves out tiles with an index beyond the axis, and says whether there was none.
  template <class E>
  bool gather_row(const void* index, int64_t first, const E* x, E* y, int64_t n, int64_t* space) const {
    const int64_t step = nest_.inner_stride(0), one = nest_.inner_stride(1), other = nest_.inner_stride(2);
    const bool plain = one == 0 && other == 1 && step_ == 1;  // along the axis that is innermost in memory
    bool valid = true;
    for (int64_t at = 0; at < n; at += kTile) {
      const int64_t m = std::min(kTile, n - at);
      const int64_t* tile = indices_.tile_of(index, first + at * step, step, space, m);
      if (!indices_.valid(tile, m)) {
        valid = false;
        continue;
      }
      const E* from = x + at * one;
      E* to = y + at * other;
      if (plain) {
#pragma GCC unroll 8
        for (int64_t i = 0; i < m; ++i) to[i] = from[tile[i]];
      } else {
        for (int64_t i = 0; i < m; ++i) to[i * other] = from[i * one + tile[i] * step_];
      }
    }
    return valid;
  }

  // An index that was expanded along the innermost axis is one for a line that is contiguous on both sides.
  bool copy_lines(const KernelArgs& args, int64_t begin, int64_t end) const {
    const auto size = static_cast<int64_t>(size_), bytes = nest_.inner() * size;
    const auto* x = static_cast<const char*>(args.inputs[0]);
    auto* y = static_cast<char*>(args.outputs[0]);
    int64_t space[kTile];
    bool valid = true;
    rows_.for_segments(begin, end, [&](const auto& offsets, int64_t rows) {
      const int64_t step = rows_.inner_stride(0);
      for (int64_t at = 0; at < rows; at += kTile) {
        const int64_t m = std::min(kTile, rows - at);
        const int64_t* tile = indices_.tile_of(args.inputs[1], offsets[0] + at * step, step, space, m);
        if (!indices_.valid(tile, m)) {
          valid = false;
          continue;
        }
        const auto line = [&](int64_t i) {
          return x + (offsets[1] + (at + i) * rows_.inner_stride(1) + tile[i] * step_) * size;
        };
        for_fetched(m, bytes, line, [&](int64_t i, const char* from) {
          std::memcpy(y + (offsets[2] + (at + i) * rows_.inner_stride(2)) * size, from, static_cast<size_t>(bytes));
        });
      }
    });
    return valid;
  }

  const int dim_;
  const Indices indices_;
  const size_t size_;
  const int64_t step_;
  const int threads_;
  const LoopNest nest_, rows_;
  const bool by_rows_, lines_;
};

}  // namespace

void add_gather_kernels(KernelTable& table) {
  table.add(DeviceKind::kCpu, {.op = "gather",
                               .prepare = [](const plan::KernelQuery& q,
                                             const PrepareContext& context) -> std::unique_ptr<PreparedKernel> {
                                 return std::make_unique<Gather>(q, context.threads);
                               },
                               .layouts = any_layouts});
}

}  // namespace sluice::cpu
