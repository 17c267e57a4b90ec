#pragma once
// Helpers that gathers and scatters share: their indices, of either width.
#include <algorithm>
#include <array>
#include <memory>

#include "kernels/cpu/strides/strided.h"
#include "kernels/cpu/strides/tiles.h"
#include "kernels/kernel.h"

namespace sluice::cpu {

inline constexpr int64_t kIndexingGrain = 16384;

[[noreturn]] void bad_index(const std::string& op, int64_t index, int64_t limit, int dim);
// Whether all of them are at least 0 and below the limit.
bool all_below(const int64_t* index, int64_t n, int64_t limit);
// The axis of the attribute "dim" of the first input.
int indexed_axis(const plan::KernelQuery& q);
inline Strides without_axis(Strides strides, int axis) {
  strides[axis] = 0;
  return strides;
}

// Calls f(i, at(i)) for n pieces of memory that lie anywhere: the beginning of one, of `bytes` at most, is fetched
// while those before it are copied.
template <class At, class F>
void for_fetched(int64_t n, int64_t bytes, const At& at, const F& f) {
  constexpr int64_t kAhead = 6, kFetched = 512;
  const int64_t fetched = std::min(bytes, kFetched);
  for (int64_t i = 0; i < n; ++i) {
    if (i + kAhead < n)
      for (int64_t line = 0; line < fetched; line += 64) __builtin_prefetch(at(i + kAhead) + line);
    f(i, at(i));
  }
}

// Indices of either width as int64. Scatters check all of them before anything is written; gathers check each tile as
// they read it, and never read by one that is out of range.
class Indices {
 public:
  Indices(const plan::KernelQuery& q, int dim)
      : op_(q.op),
        dim_(dim),
        limit_(q.inputs[0].shape[dim]),
        load_(tile_load(q.inputs[1].dtype, TileType::kInt64)),
        size_(static_cast<int64_t>(dtype_size(q.inputs[1].dtype))),
        direct_(q.inputs[1].dtype == DType::kInt64) {
    const std::array<Strides, 1> strides = {q.inputs[1].strides};
    nest_ = std::make_unique<LoopNest>(q.inputs[1].shape, strides);
  }

  void check(const void* data) const {
    int64_t space[kTile];
    nest_->for_segments(0, nest_->size(), [&](const auto& offsets, int64_t n) {
      const int64_t step = nest_->inner_stride(0);
      for (int64_t at = 0; at < n; at += kTile) {
        const int64_t m = std::min(kTile, n - at);
        const int64_t* tile = tile_of(data, offsets[0] + at * step, step, space, m);
        const bool bad = !valid(tile, m);
        for (int64_t i = 0; bad && i < m; ++i)
          if (tile[i] < 0 || tile[i] >= limit_) bad_index(op_, tile[i], limit_, dim_);
      }
    });
  }

  bool valid(const int64_t* tile, int64_t n) const { return all_below(tile, n, limit_); }

  // n <= kTile indices: where they lie, or loaded into `space`.
  const int64_t* tile_of(const void* data, int64_t offset, int64_t step, int64_t* space, int64_t n) const {
    if (direct_ && step == 1) return static_cast<const int64_t*>(data) + offset;
    load(data, offset, step, space, n);
    return space;
  }

  void load(const void* data, int64_t offset, int64_t step, int64_t* tile, int64_t n) const {
    load_(static_cast<const char*>(data) + offset * size_, step, tile, n);
  }
  int64_t one(const void* data, int64_t offset) const {
    int64_t v;
    load(data, offset, 1, &v, 1);
    return v;
  }

 private:
  const std::string op_;
  const int dim_;
  const int64_t limit_;
  const LoadFn load_;
  const int64_t size_;
  const bool direct_;
  std::unique_ptr<LoopNest> nest_;
};

}  // namespace sluice::cpu
