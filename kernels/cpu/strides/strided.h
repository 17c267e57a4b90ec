#pragma once
// Loops over strided operands: axes sorted and merged once at prepare, walked by segments of the innermost axis.
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "base/tensor_spec.h"

namespace sluice::cpu {

inline constexpr int kMaxOperands = 4;

// Strides of `operand` seen as a tensor of `shape`, to which it broadcasts: 0 where it repeats.
Strides broadcast_strides(const TensorSpec& operand, const Shape& shape);

// Axes common to several operands, merged where all of them are dense. The last operand decides the order of the
// axes: its smallest stride is innermost. For up to kMost operands: throws kValue when there are more.
template <int kMost>
class LoopNestOf {
 public:
  LoopNestOf(const Shape& shape, std::span<const Strides> strides);
  // The axes in their given order: element i is the i-th in row-major order.
  static LoopNestOf in_order(const Shape& shape, std::span<const Strides> strides);

  int64_t size() const { return size_; }    // elements in all
  int64_t inner() const { return inner_; }  // length of the innermost axis, at least 1
  int64_t inner_stride(int operand) const { return inner_strides_[operand]; }
  int outer_rank() const { return outer_rank_; }  // axes around the innermost one, outermost first
  int64_t outer_dim(int axis) const { return dims_[axis]; }
  int64_t outer_stride(int operand, int axis) const { return strides_[operand][axis]; }

  // Calls f(offsets, n) for pieces of the innermost axis that cover elements [begin, end) in order: operand k's
  // elements lie at offsets[k] + i * inner_stride(k), i < n. Offsets are in elements.
  template <class F>
  void for_segments(int64_t begin, int64_t end, F&& f) const {
    if (begin >= end) return;
    std::array<int64_t, kMaxRank> at{};
    std::array<int64_t, kMost> offsets{};
    int64_t row = begin / inner_, inside = begin % inner_;
    for (int axis = outer_rank_ - 1; axis >= 0; --axis) {
      at[axis] = row % dims_[axis];
      row /= dims_[axis];
      for (int k = 0; k < operands_; ++k) offsets[k] += at[axis] * strides_[k][axis];
    }
    for (int64_t done = begin;;) {
      const int64_t n = std::min(inner_ - inside, end - done);
      std::array<int64_t, kMost> here = offsets;
      for (int k = 0; k < operands_; ++k) here[k] += inside * inner_strides_[k];
      f(here, n);
      done += n;
      if (done >= end) return;
      inside = 0;
      for (int axis = outer_rank_ - 1; axis >= 0; --axis) {
        for (int k = 0; k < operands_; ++k) offsets[k] += strides_[k][axis];
        if (++at[axis] < dims_[axis]) break;
        for (int k = 0; k < operands_; ++k) offsets[k] -= strides_[k][axis] * dims_[axis];
        at[axis] = 0;
      }
    }
  }

 private:
  LoopNestOf() = default;
  void build(const Shape& shape, std::span<const Strides> strides, std::span<const int> order);

  int operands_ = 0;
  int outer_rank_ = 0;
  int64_t size_ = 0, inner_ = 1;
  std::array<int64_t, kMost> inner_strides_{};
  std::array<int64_t, kMaxRank> dims_{};                        // of the outer axes
  std::array<std::array<int64_t, kMaxRank>, kMost> strides_{};  // of the outer axes
};
using LoopNest = LoopNestOf<kMaxOperands>;

// Splits [0, n) evenly among `threads` OpenMP threads when there are at least two grains of work, else runs f(0, n)
// here. f must not throw, and its result must not depend on the split. Allocates nothing.
void parallel_ranges(int threads, int64_t n, int64_t grain, void (*f)(const void* context, int64_t begin, int64_t end),
                     const void* context);

template <class F>
void parallel_ranges(int threads, int64_t n, int64_t grain, const F& f) {
  parallel_ranges(
      threads, n, grain,
      [](const void* context, int64_t begin, int64_t end) { (*static_cast<const F*>(context))(begin, end); }, &f);
}

// f(i) for i in [0, n), of such ranges.
template <class F>
void parallel_each(int threads, int64_t n, const F& f) {
  parallel_ranges(threads, n, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i);
  });
}

// The same for jobs that take unequal time: f(job, worker) by the worker in [0, threads) that is free next.
void parallel_jobs(int threads, int64_t n, void (*f)(const void* context, int64_t job, int worker),
                   const void* context);

template <class F>
void parallel_jobs(int threads, int64_t n, const F& f) {
  parallel_jobs(
      threads, n, [](const void* context, int64_t job, int worker) { (*static_cast<const F*>(context))(job, worker); },
      &f);
}

}  // namespace sluice::cpu
