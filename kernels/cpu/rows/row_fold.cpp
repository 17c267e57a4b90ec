#include "kernels/cpu/rows/row_fold.h"

#include <algorithm>

#include "kernels/cpu/reduction/joins.h"
#include "kernels/cpu/strides/tiles.h"

namespace sluice::cpu {
namespace {

template <class T>
class Fold final : public RowFold {
 public:
  Fold(ReductionKind kind, DType dtype, bool squares)
      : joins_{kind},
        squares_(squares),
        folds_(folds_of<T>(squares ? ReductionKind::kSquares : kind)),
        load_(tile_load(dtype, tile_type(dtype))),
        store_(tile_store(tile_type(dtype), dtype)),
        size_(static_cast<int64_t>(dtype_size(dtype))),
        direct_(is_tile(dtype, tile_type(dtype))) {}

  void rows(const void* x, int64_t n, int64_t rows, void* out) const override {
    T results[kTile];
    for (int64_t done = 0; done < rows; done += kTile) {
      const int64_t m = std::min(kTile, rows - done);
      const char* from = static_cast<const char*>(x) + done * n * size_;
      if (direct_ && n > 0) folds_.rows(reinterpret_cast<const T*>(from), n, n, results, m);
      for (int64_t r = 0; r < m; ++r) {
        const Total total = direct_ && n > 0 ? joins_.join(joins_.identity(), static_cast<Total>(results[r]))
                                             : loaded(from + r * n * size_, n);
        results[r] = joins_.result(total, n);
      }
      store_(results, static_cast<char*>(out) + done * size_, 1, m);
    }
  }

  void run(const void* x, int64_t n, int64_t before, void* entries) const override {
    T* to = static_cast<T*>(entries) + before / step();
    for_tiles(static_cast<const char*>(x), n, [&](const T* t, int64_t m) {
      if (m < kShort)
        to = std::transform(t, t + m, to, [this](T v) { return squares_ ? v * v : v; });
      else
        *to++ = folds_.run(t, m);
    });
  }

  void finish(const LongRow& row, const void* entries, void* out) const override {
    Total total = joins_.identity();
    for (int64_t part = 0; part < row.parts; ++part) {
      const T* from = reinterpret_cast<const T*>(static_cast<const char*>(entries) + part * entry_bytes(row));
      const int64_t n = row.first(part + 1) - row.first(part), tail = n % step();
      const int64_t count = n / step() + (tail < kShort ? tail : 1);
      Total mine = joins_.identity();
      for (int64_t i = 0; i < count; ++i) mine = joins_.join(mine, static_cast<Total>(from[i]));
      total = part == 0 ? mine : joins_.join(total, mine);
    }
    const T result = joins_.result(total, row.size);
    store_(&result, out, 1, 1);
  }

 private:
  using Total = typename Joins<T>::Total;

  // Elements that are folded at once: 16-bit ones as many as a tile has.
  int64_t step() const { return direct_ ? kRun : kTile; }

  template <class F>
  void for_tiles(const char* x, int64_t n, F f) const {
    alignas(64) T space[kTile];
    for (int64_t at = 0; at < n; at += step()) {
      const int64_t m = std::min(step(), n - at);
      if (!direct_) load_(x + at * size_, 1, space, m);
      f(direct_ ? reinterpret_cast<const T*>(x + at * size_) : space, m);
    }
  }

  Total loaded(const char* x, int64_t n) const {
    Total total = joins_.identity();
    for_tiles(x, n, [&](const T* t, int64_t m) {
      if (m >= kShort)
        total = joins_.join(total, static_cast<Total>(folds_.run(t, m)));
      else
        for (int64_t i = 0; i < m; ++i) total = joins_.join(total, static_cast<Total>(t[i]));
    });
    return total;
  }

  const Joins<T> joins_;
  const bool squares_;
  const Folds<T> folds_;
  const LoadFn load_;
  const StoreFn store_;
  const int64_t size_;
  const bool direct_;
};

}  // namespace

int64_t RowFold::entry_bytes(const LongRow& row) {
  const int64_t most = (row.size + row.parts - 1) / row.parts;
  return (most / kTile + 1 + kShort) * static_cast<int64_t>(sizeof(double));
}

std::unique_ptr<const RowFold> make_row_fold(ReductionKind kind, DType dtype, bool squares) {
  if (tile_type(dtype) == TileType::kDouble) return std::make_unique<Fold<double>>(kind, dtype, squares);
  return std::make_unique<Fold<float>>(kind, dtype, squares);
}

}  // namespace sluice::cpu
