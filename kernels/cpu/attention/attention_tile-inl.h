// A tile of query rows of attention: its operands as they are computed with, its scores, and what it leaves. Compiled
// for each instruction set of the file that includes it; its guard is turned for each.
#if defined(SLUICE_KERNELS_CPU_ATTENTION_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_KERNELS_CPU_ATTENTION_TILE_INL_H
#undef SLUICE_KERNELS_CPU_ATTENTION_TILE_INL_H
#else
#define SLUICE_KERNELS_CPU_ATTENTION_TILE_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <limits>

#include "kernels/cpu/attention/attention_row-inl.h"
#include "kernels/cpu/math/lane_products-inl.h"
#include "kernels/cpu/math/numeric.h"
#include "kernels/cpu/random/philox.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu {
namespace HWY_NAMESPACE {

template <class C>
constexpr int64_t kRowTile = kRowTileBytes / static_cast<int64_t>(sizeof(C));

// Query rows [first, first + rows) of one head, and the scratch of the thread that computes them.
template <class T>
struct RowTile {
  using C = Compute<T>;
  static constexpr int64_t kRows = kRowTile<C>;
  const AttentionShape& s;
  const AttentionPointers& p;
  char* scratch;
  int64_t n = 0, h = 0, first = 0;
  int64_t rows = 0, lanes = 0;  // lanes: rows, and zeros up to a whole vector

  HWY_INLINE void move(int64_t batch, int64_t head, int64_t tile) {
    n = batch, h = head, first = tile * kRows;
    rows = std::min(kRows, s.rows - first);
    lanes = whole_vectors<C>(rows);
  }
  HWY_INLINE C* at(uint64_t offset) const { return reinterpret_cast<C*>(scratch + offset); }
  // Sums per row: the i-th of them.
  HWY_INLINE C* sums(int i) const { return at(s.scratch.sums) + i * kRows; }
  HWY_INLINE int64_t key_end() const { return s.causal ? std::min(s.keys, first + rows) : s.keys; }

  // An operand's rows of this tile as (cols, lanes), times `factor`; rows that are missing are zeros. It also gives
  // them as (rows, cols) in whole vectors where `rows_to` is given.
  HWY_INLINE void take(const void* from, const MatrixPlaces& places, int64_t cols, C factor, C* lanes_to, C* rows_to) {
    Matrix<C> m = widened(static_cast<const T*>(from) + places.at(n, h, first), places, rows, cols, at(s.scratch.wide));
    if (m.col == 1) {
      transpose(m.data, m.row, rows, cols, lanes_to, kRows, factor);
    } else {
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < cols; ++c) lanes_to[c * kRows + r] = m.data[r * m.row + c * m.col] * factor;
    }
    for (int64_t c = 0; rows < lanes && c < cols; ++c)
      std::fill(lanes_to + c * kRows + rows, lanes_to + c * kRows + lanes, C(0));
    if (!rows_to) return;
    const int64_t whole = whole_vectors<C>(cols);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) rows_to[r * whole + c] = m.data[r * m.row + c * m.col] * factor;
      std::fill(rows_to + r * whole + cols, rows_to + (r + 1) * whole, C(0));
    }
  }
  // Writes (cols, lanes) as an operand's rows.
  HWY_INLINE void put(const C* from, int64_t cols, C factor, void* to, const MatrixPlaces& places) {
    T* rows_to = static_cast<T*>(to) + places.at(n, h, first);
    if constexpr (std::is_same_v<T, C>) {
      if (places.col == 1) return transpose(from, kRows, cols, rows, rows_to, places.row, factor);
    }
    C* wide = at(s.scratch.wide);
    transpose(from, kRows, cols, rows, wide, cols, factor);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) store(rows_to + r * places.row + c * places.col, wide[r * cols + c]);
  }

  // (keys, lanes) of the scores of keys [begin, begin + count).
  HWY_INLINE void make_scores(const Matrix<C>& keys, int64_t begin, int64_t count, C* scores) {
    multiply<C>(
        {keys.data, keys.row, keys.col, at(s.scratch.q_lanes), kRows, scores, kRows, count, s.width, lanes, true});
    constexpr C kNothing = -std::numeric_limits<C>::infinity();
    if (s.mask_kind == MaskKind::kBool)
      mask_with<bool>(
          begin, count, [&](C* x, bool on) { *x = on ? *x : kNothing; }, scores);
    if (s.mask_kind == MaskKind::kOwn)
      mask_with<T>(
          begin, count, [](C* x, T m) { *x += load(m); }, scores);
    if (s.mask_kind == MaskKind::kCompute)
      mask_with<C>(
          begin, count, [](C* x, C m) { *x += m; }, scores);
    if (!s.causal) return;
    for (int64_t c = std::max<int64_t>(0, first + 1 - begin); c < count; ++c)
      std::fill(scores + c * kRows, scores + c * kRows + std::min(begin + c - first, lanes), kNothing);
  }
  template <class M, class F>
  HWY_INLINE void mask_with(int64_t begin, int64_t count, F apply, C* scores) {
    const M* m = static_cast<const M*>(p.mask) + s.mask.at(n, h, first, begin);
    for (int64_t c = 0; c < count; ++c) {
      const M* at = m + c * s.mask.col;
      C* x = scores + c * kRows;
      if (s.mask.row == 0) {
        const M one = *at;
        for (int64_t l = 0; l < lanes; ++l) apply(x + l, one);
      } else {
        for (int64_t l = 0; l < rows; ++l) apply(x + l, at[l * s.mask.row]);
      }
    }
  }
  // Makes the factors by which dropout multiplies the weights of keys [begin, begin + count).
  HWY_INLINE void make_kept(int64_t begin, int64_t count, C* kept) {
    uint32_t words[kKeyTile];
    const PhiloxStream stream(static_cast<const int64_t*>(p.state), s.salt);
    const uint64_t limit = chosen_below(1 - s.dropout_p);
    const C factor = static_cast<C>(dropout_scale(s.dropout_p));
    for (int64_t c = 0; rows < lanes && c < count; ++c)
      std::fill(kept + c * kRows + rows, kept + c * kRows + lanes, C(0));
    for (int64_t l = 0; l < rows; ++l) {
      stream.words_at(((n * s.heads + h) * s.rows + first + l) * s.keys + begin, count, words);
      for (int64_t c = 0; c < count; ++c) kept[c * kRows + l] = words[c] < limit ? factor : C(0);
    }
  }
  // x *= y over (count, lanes).
  HWY_INLINE void scale_by(C* x, const C* y, int64_t count) {
    for (int64_t c = 0; c < count; ++c) {
#pragma omp simd
      for (int64_t l = 0; l < lanes; ++l) x[c * kRows + l] *= y[c * kRows + l];
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace sluice::cpu
HWY_AFTER_NAMESPACE();
#endif
