#include "kernels/cpu/reduction/folds.h"

#include <algorithm>
#include <cstring>

namespace sluice::cpu {
namespace {

using Kind = ReductionKind;

typedef float Four __attribute__((vector_size(16)));

template <Kind kind>
SLUICE_INLINE Four four_at(const float* x) {
  Four v;
  std::memcpy(&v, x, sizeof v);
  return share_of<kind>(v);
}

// Four short rows at a time, each in the order of folded_short_rows(), which does those that are left. Gives their
// number.
template <Kind kind>
SLUICE_INLINE int64_t folded_fours(const float* x, int64_t step, int64_t n, float* out, int64_t rows) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4, x += 4 * step) {
    Four a = four_at<kind>(x), b = four_at<kind>(x + step), c = four_at<kind>(x + 2 * step),
         d = four_at<kind>(x + 3 * step);
    int64_t i = 4;
    for (; i + 4 <= n; i += 4) {
      a = joined<kind>(a, four_at<kind>(x + i));
      b = joined<kind>(b, four_at<kind>(x + step + i));
      c = joined<kind>(c, four_at<kind>(x + 2 * step + i));
      d = joined<kind>(d, four_at<kind>(x + 3 * step + i));
    }
    // Each vector holds the four lanes of one row. The shuffles join lane 0 with 2 and 1 with 3 of every row, and then
    // the two sums: the order that a row by itself has, so that results have the same bits.
    const Four ab = joined<kind>(__builtin_shufflevector(a, b, 0, 4, 1, 5), __builtin_shufflevector(a, b, 2, 6, 3, 7)),
               cd = joined<kind>(__builtin_shufflevector(c, d, 0, 4, 1, 5), __builtin_shufflevector(c, d, 2, 6, 3, 7));
    Four total = joined<kind>(__builtin_shufflevector(ab, cd, 0, 1, 4, 5), __builtin_shufflevector(ab, cd, 2, 3, 6, 7));
    for (; i < n; ++i)
      total = joined<kind>(total, share_of<kind>(Four{x[i], x[step + i], x[2 * step + i], x[3 * step + i]}));
    std::memcpy(out + r, &total, sizeof total);
  }
  return r;
}

// Each short row as one: floats in four lanes, integers in the order that the compiler likes (GCC 12 makes wrong code
// of lanes of wrapping integers). REQUIRES: 0 < n.
template <Kind kind, class T>
SLUICE_INLINE void folded_short_rows(const T* x, int64_t step, int64_t n, T* out, int64_t rows) {
  constexpr int64_t kWide = 4;
  int64_t done = 0;
  if constexpr (std::is_same_v<T, float>)
    if (n >= kWide) done = folded_fours<kind>(x, step, n, out, rows);
  x += done * step;
  for (int64_t r = done; r < rows; ++r, x += step) {
    T total = share_of<kind>(x[0]);
    int64_t i = 1;
    if (!std::is_integral_v<T> && n >= kWide) {
      // Lanes break the chain of joins, each of which would wait for the one before it.
      T lanes[kWide];
      for (int64_t l = 0; l < kWide; ++l) lanes[l] = share_of<kind>(x[l]);
      for (i = kWide; i + kWide <= n; i += kWide)
        for (int64_t l = 0; l < kWide; ++l) lanes[l] = joined<kind>(lanes[l], share_of<kind>(x[i + l]));
      total = joined<kind>(joined<kind>(lanes[0], lanes[2]), joined<kind>(lanes[1], lanes[3]));
    }
    for (; i < n; ++i) total = joined<kind>(total, share_of<kind>(x[i]));
    out[r] = total;
  }
}

template <class T, T (*kRunOf)(const T*, int64_t), void (*kShortRows)(const T*, int64_t, int64_t, T*, int64_t)>
void folded_rows(const T* x, int64_t step, int64_t n, T* out, int64_t rows) {
  if (n <= kShortRow) return kShortRows(x, step, n, out, rows);
  for (int64_t r = 0; r < rows; ++r) out[r] = kRunOf(x + r * step, n);
}

// into[i] joined with element i of kTogether lines, `step` apart: of comparisons that pass NaN on GCC 12 makes vectors
// where there are two.
template <Kind kind, class T>
SLUICE_INLINE void folded_lines(T* into, const T* x, int64_t step, int64_t n) {
  if constexpr (kPassesNan<kind, T>) {
    for (int64_t line = 0; line < kTogether; line += 2, x += 2 * step)
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) into[i] = joined<kind>(into[i], joined<kind>(x[i], x[step + i]));
    return;
  }
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const T* v = x + i;
    const T first = joined<kind>(share_of<kind>(v[0]), share_of<kind>(v[step])),
            second = joined<kind>(share_of<kind>(v[2 * step]), share_of<kind>(v[3 * step])),
            third = joined<kind>(share_of<kind>(v[4 * step]), share_of<kind>(v[5 * step])),
            fourth = joined<kind>(share_of<kind>(v[6 * step]), share_of<kind>(v[7 * step]));
    const T low = joined<kind>(first, second), high = joined<kind>(third, fourth);
    into[i] = joined<kind>(into[i], joined<kind>(low, high));
  }
}

// kWidth columns whose totals stay in registers: stores between the loads would slow them down.
template <Kind kind, int64_t kWidth, class T>
SLUICE_INLINE void folded_narrow(T* into, const T* x, int64_t lines) {
  T lanes[kWidth];
  for (int64_t i = 0; i < kWidth; ++i) lanes[i] = into[i];
  for (int64_t line = 0; line < lines; ++line)
    for (int64_t i = 0; i < kWidth; ++i) lanes[i] = joined<kind>(lanes[i], share_of<kind>(x[line * kWidth + i]));
  for (int64_t i = 0; i < kWidth; ++i) into[i] = lanes[i];
}

template <Kind kind, class T>
SLUICE_INLINE void folded_stack(T* into, const T* x, int64_t n, int64_t lines) {
  if constexpr (!kIsComplex<T>) {
    if (n == kFoldLanes) return folded_narrow<kind, kFoldLanes>(into, x, lines);
    if (n == 2 * kFoldLanes) return folded_narrow<kind, 2 * kFoldLanes>(into, x, lines);
    if (n == 4 * kFoldLanes) return folded_narrow<kind, 4 * kFoldLanes>(into, x, lines);
  }
  for (int64_t line = 0; line < lines; ++line, x += n)
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) into[i] = joined<kind>(into[i], share_of<kind>(x[i]));
}

// For several instruction sets, which templates cannot be compiled for.
#define FOLDS_OF(NAME, KIND, T)                                                                                       \
  SLUICE_CLONES T NAME##_run(const T* x, int64_t n) { return folded<Kind::KIND>(x, n); }                              \
  SLUICE_CLONES void NAME##_short(const T* x, int64_t step, int64_t n, T* out, int64_t rows) {                        \
    folded_short_rows<Kind::KIND>(x, step, n, out, rows);                                                             \
  }                                                                                                                   \
  SLUICE_CLONES void NAME##_lines(T* to, const T* x, int64_t s, int64_t n) { folded_lines<Kind::KIND>(to, x, s, n); } \
  SLUICE_CLONES void NAME##_stack(T* to, const T* x, int64_t n, int64_t m) { folded_stack<Kind::KIND>(to, x, n, m); } \
  const Folds<T> NAME = {NAME##_run, folded_rows<T, NAME##_run, NAME##_short>, NAME##_lines, NAME##_stack};
#define FOLDS(NAME, KIND)                                  \
  FOLDS_OF(NAME##_f32, KIND, float)                        \
  FOLDS_OF(NAME##_f64, KIND, double)                       \
  FOLDS_OF(NAME##_i64, KIND, int64_t)                      \
  constexpr struct {                                       \
    operator Folds<float>() const { return NAME##_f32; }   \
    operator Folds<double>() const { return NAME##_f64; }  \
    operator Folds<int64_t>() const { return NAME##_i64; } \
  } NAME;
FOLDS(fold_sum, kSum)
FOLDS(fold_squares, kSquares)
FOLDS(fold_prod, kProd)
FOLDS(fold_max, kMax)
FOLDS(fold_min, kMin)
#undef FOLDS
#undef FOLDS_OF

template <Kind kind, class T>
Folds<T> plain_folds() {
  return {folded<kind, T>, folded_rows<T, folded<kind, T>, folded_short_rows<kind, T>>, folded_lines<kind, T>,
          folded_stack<kind, T>};
}

}  // namespace

template <class T>
Folds<T> folds_of(Kind kind) {
  if constexpr (kIsComplex<T>)
    return kind == Kind::kProd ? plain_folds<Kind::kProd, T>() : plain_folds<Kind::kSum, T>();
  else
    switch (kind) {
      case Kind::kSum:
      case Kind::kMean: return fold_sum;
      case Kind::kSquares: return fold_squares;
      case Kind::kProd: return fold_prod;
      case Kind::kMax:
      case Kind::kAny: return fold_max;
      case Kind::kMin:
      case Kind::kAll: return fold_min;
    }
  return {};
}

template Folds<float> folds_of(Kind);
template Folds<double> folds_of(Kind);
template Folds<int64_t> folds_of(Kind);
template Folds<std::complex<float>> folds_of(Kind);
template Folds<std::complex<double>> folds_of(Kind);

}  // namespace sluice::cpu
