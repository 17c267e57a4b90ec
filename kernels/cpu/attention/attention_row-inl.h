// A query row of attention by itself, where there are few: vectors run along its columns and its scores. Compiled for
// each instruction set of the file that includes it; its guard is turned for each.
#if defined(SLUICE_KERNELS_CPU_ATTENTION_ROW_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_KERNELS_CPU_ATTENTION_ROW_INL_H
#undef SLUICE_KERNELS_CPU_ATTENTION_ROW_INL_H
#else
#define SLUICE_KERNELS_CPU_ATTENTION_ROW_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/math/lane_products-inl.h"
#include "kernels/cpu/math/numeric.h"
#include "kernels/cpu/random/philox.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu {
namespace HWY_NAMESPACE {

// A matrix as it is computed with.
template <class C>
struct Matrix {
  const C* data;
  int64_t row, col;
};

// Rows of an operand where they lie, or widened into `buffer`.
template <class T>
HWY_INLINE Matrix<Compute<T>> widened(const T* from, const MatrixPlaces& places, int64_t rows, int64_t cols,
                                      Compute<T>* buffer) {
  if constexpr (std::is_same_v<T, Compute<T>>) {
    return {from, places.row, places.col};
  } else {
    for (int64_t r = 0; r < rows; ++r) {
      const T* row = from + r * places.row;
      Compute<T>* to = buffer + r * cols;
      if (places.col == 1) {
        widen(row, cols, to);
      } else {
        for (int64_t c = 0; c < cols; ++c) to[c] = load(row[c * places.col]);
      }
    }
    return {buffer, cols, 1};
  }
}

// scores[c] = query . keys[c]. Four at a time, which read the query once.
template <class C>
HWY_NOINLINE void row_scores(const C* q, const Matrix<C>& keys, int64_t count, int64_t width, C* scores) {
  int64_t c = 0;
  for (; c + 4 <= count; c += 4) {
    const C *k0 = keys.data + c * keys.row, *k1 = k0 + keys.row, *k2 = k1 + keys.row, *k3 = k2 + keys.row;
    C d0 = 0, d1 = 0, d2 = 0, d3 = 0;
#pragma omp simd reduction(+ : d0, d1, d2, d3)
    for (int64_t e = 0; e < width; ++e) d0 += q[e] * k0[e], d1 += q[e] * k1[e], d2 += q[e] * k2[e], d3 += q[e] * k3[e];
    scores[c] = d0, scores[c + 1] = d1, scores[c + 2] = d2, scores[c + 3] = d3;
  }
  for (; c < count; ++c) {
    const C* k = keys.data + c * keys.row;
    C d = 0;
#pragma omp simd reduction(+ : d)
    for (int64_t e = 0; e < width; ++e) d += q[e] * k[e];
    scores[c] = d;
  }
}
// out = out * decay + weights values.
template <class C>
HWY_NOINLINE void add_row_values(const C* weights, const Matrix<C>& values, int64_t count, int64_t width, C decay,
                                 C* out) {
#pragma omp simd
  for (int64_t d = 0; d < width; ++d) out[d] *= decay;
  int64_t c = 0;
  for (; c + 4 <= count; c += 4) {
    const C *v0 = values.data + c * values.row, *v1 = v0 + values.row, *v2 = v1 + values.row, *v3 = v2 + values.row;
    const C w0 = weights[c], w1 = weights[c + 1], w2 = weights[c + 2], w3 = weights[c + 3];
#pragma omp simd
    for (int64_t d = 0; d < width; ++d) out[d] += (w0 * v0[d] + w1 * v1[d]) + (w2 * v2[d] + w3 * v3[d]);
  }
  for (; c < count; ++c) {
    const C *v = values.data + c * values.row, w = weights[c];
#pragma omp simd
    for (int64_t d = 0; d < width; ++d) out[d] += w * v[d];
  }
}

// REQUIRES: columns of keys and values are dense, once widened.
template <class T>
HWY_INLINE void forward_row(const AttentionShape& s, const AttentionPointers& p, char* scratch, int64_t n, int64_t h,
                            int64_t row) {
  using C = Compute<T>;
  constexpr C kNothing = -std::numeric_limits<C>::infinity();
  const auto room = [&](uint64_t offset) { return reinterpret_cast<C*>(scratch + offset); };
  const int64_t own = h / (s.heads / s.own_heads), end = s.causal ? std::min(s.keys, row + 1) : s.keys;
  C *query = room(s.scratch.q_lanes), *out = room(s.scratch.out_lanes), *scores = room(s.scratch.scores),
    top = kNothing, sum = 0;
  const T* from = static_cast<const T*>(p.q) + s.q.at(n, h, row);
  for (int64_t e = 0; e < s.width; ++e) query[e] = load(from[e * s.q.col]) * static_cast<C>(s.scale);
  std::fill(out, out + s.value_width, C(0));
  for (int64_t begin = 0; begin < end; begin += kKeyTile) {
    const int64_t count = std::min(kKeyTile, end - begin);
    const Matrix<C> keys = widened(static_cast<const T*>(p.k) + s.k.at(n, own, begin), s.k, count, s.width,
                                   room(s.scratch.keys)),
                    values = widened(static_cast<const T*>(p.v) + s.v.at(n, own, begin), s.v, count, s.value_width,
                                     room(s.scratch.values));
    row_scores(query, keys, count, s.width, scores);
    const int64_t at = s.mask.at(n, h, row, begin);
    if (s.mask_kind == MaskKind::kBool) {
      const bool* m = static_cast<const bool*>(p.mask) + at;
      for (int64_t c = 0; c < count; ++c) scores[c] = m[c * s.mask.col] ? scores[c] : kNothing;
    } else if (s.mask_kind == MaskKind::kOwn) {
      const T* m = static_cast<const T*>(p.mask) + at;
      for (int64_t c = 0; c < count; ++c) scores[c] += load(m[c * s.mask.col]);
    } else if (s.mask_kind == MaskKind::kCompute) {
      const C* m = static_cast<const C*>(p.mask) + at;
      for (int64_t c = 0; c < count; ++c) scores[c] += m[c * s.mask.col];
    }
    C most = top, added = 0;
#pragma omp simd reduction(max : most)
    for (int64_t c = 0; c < count; ++c) most = scores[c] > most ? scores[c] : most;
    const C base = most == kNothing ? C(0) : most, decay = exponential(top - base);
#pragma omp simd reduction(+ : added)
    for (int64_t c = 0; c < count; ++c) {
      scores[c] = exponential(scores[c] - base);
      added += scores[c];
    }
    top = most;
    sum = sum * decay + added;
    if (s.dropout_p > 0) {
      uint32_t words[kKeyTile];
      PhiloxStream(static_cast<const int64_t*>(p.state), s.salt)
          .words_at(((n * s.heads + h) * s.rows + row) * s.keys + begin, count, words);
      const uint64_t limit = chosen_below(1 - s.dropout_p);
      const C factor = static_cast<C>(dropout_scale(s.dropout_p));
      for (int64_t c = 0; c < count; ++c) scores[c] *= words[c] < limit ? factor : C(0);
    }
    add_row_values(scores, values, count, s.value_width, decay, out);
  }
  static_cast<C*>(p.out_lse)[(n * s.heads + h) * s.rows + row] = sum == 0 ? C(0) : top + std::log(sum);
  const C scale = sum == 0 ? C(0) : 1 / sum;
  T* to = static_cast<T*>(p.out) + s.result.at(n, h, row);
  for (int64_t d = 0; d < s.value_width; ++d) store(to + d * s.result.col, out[d] * scale);
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::cpu
HWY_AFTER_NAMESPACE();
#endif
