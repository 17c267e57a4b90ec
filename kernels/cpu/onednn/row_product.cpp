#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/onednn/row_product.cpp"

#include "kernels/cpu/onednn/row_product.h"

#include <algorithm>

#include "kernels/cpu/math/simd_foreach.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kColumns = 512;  // whose sums stay in the first cache

using Floats = hn::ScalableTag<float>;
using Vec = hn::Vec<Floats>;

#if HWY_TARGET != HWY_SCALAR
// Four elements of each of `kLanes` columns, as kLanes / 4 blocks of four lanes.
template <class D>
HWY_INLINE hn::Vec<D> blocks_of(D d, const float* const* columns, int64_t k) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    constexpr size_t kBlocks = hn::MaxLanes(D()) / 4;
    return hn::Combine(d, blocks_of(half, columns + 4 * (kBlocks / 2), k), blocks_of(half, columns, k));
  } else {
    return hn::LoadU(d, columns[0] + k);
  }
}
#endif

#if HWY_TARGET != HWY_SCALAR
// Adds to `sum`, in order, what 4 kGroups elements of the row and of its columns give.
template <int kGroups>
HWY_INLINE Vec add_groups(const float* a, const float* const* columns, int64_t k, Vec sum) {
  const Floats d;
  Vec rows[4][kGroups];
  // A line of a column is read at once: columns that lie a power of two apart push each other out of the first cache.
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) {
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) rows[r][g] = blocks_of(d, columns + r, k + 4 * g);
  }
#pragma GCC unroll 4
  for (int g = 0; g < kGroups; ++g) {
    // Four rows of blocks become, within each block, four columns.
    const Vec e0 = hn::InterleaveLower(d, rows[0][g], rows[2][g]), e1 = hn::InterleaveUpper(d, rows[0][g], rows[2][g]),
              o0 = hn::InterleaveLower(d, rows[1][g], rows[3][g]), o1 = hn::InterleaveUpper(d, rows[1][g], rows[3][g]);
    const float* const x = a + k + 4 * g;
    sum = hn::MulAdd(hn::Set(d, x[0]), hn::InterleaveLower(d, e0, o0), sum);
    sum = hn::MulAdd(hn::Set(d, x[1]), hn::InterleaveUpper(d, e0, o0), sum);
    sum = hn::MulAdd(hn::Set(d, x[2]), hn::InterleaveLower(d, e1, o1), sum);
    sum = hn::MulAdd(hn::Set(d, x[3]), hn::InterleaveUpper(d, e1, o1), sum);
  }
  return sum;
}
#endif

// Adds to `sums`, in order, what elements [begin, end) of the row and of its columns give.
template <int kVectors>
HWY_INLINE void add_chunk(const float* a, const float* const* columns, int64_t begin, int64_t end, Vec* sums) {
  const Floats d;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(d));
  int64_t k = begin;
#if HWY_TARGET != HWY_SCALAR
  constexpr int kGroups = kLanes == 16 ? 4 : 2;  // as many as registers hold
  for (; k + 4 * kGroups <= end; k += 4 * kGroups)
    for (int v = 0; v < kVectors; ++v) sums[v] = add_groups<kGroups>(a, columns + v * kLanes, k, sums[v]);
  for (; k + 4 <= end; k += 4)
    for (int v = 0; v < kVectors; ++v) sums[v] = add_groups<1>(a, columns + v * kLanes, k, sums[v]);
#endif
  for (; k < end; ++k) {
    HWY_ALIGN float lanes[kVectors * kLanes];
    for (int64_t j = 0; j < kVectors * kLanes; ++j) lanes[j] = columns[j][k];
    for (int v = 0; v < kVectors; ++v) sums[v] = hn::MulAdd(hn::Set(d, a[k]), hn::Load(d, lanes + v * kLanes), sums[v]);
  }
}

// Multiplies by a matrix whose columns are dense.
void dense_columns(const RowProduct& p, int64_t begin, int64_t end, float* sums) {
  const Floats d;
  constexpr int kVectors = 2;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(d)), kAtOnce = kVectors * kLanes;
  for (int64_t first = begin; first < end; first += kAtOnce) {
    const float* columns[kAtOnce];
    for (int64_t j = 0; j < kAtOnce; ++j) columns[j] = p.b + std::min(first + j, end - 1) * p.b_column;
    Vec all[kVectors] = {hn::Zero(d), hn::Zero(d)};
    for (int64_t k = 0; k < p.depth; k += p.chunk) {
      Vec chunk[kVectors] = {hn::Zero(d), hn::Zero(d)};
      add_chunk<kVectors>(p.a, columns, k, std::min(k + p.chunk, p.depth), chunk);
      for (int v = 0; v < kVectors; ++v) all[v] = k == 0 ? chunk[v] : hn::Add(all[v], chunk[v]);
    }
    HWY_ALIGN float lanes[kAtOnce];
    for (int v = 0; v < kVectors; ++v) hn::Store(all[v], d, lanes + v * kLanes);
    std::copy_n(lanes, std::min(kAtOnce, end - first), sums + (first - begin));
  }
}

// sums += the products of `kRows` elements of the row and as many rows of b.
template <int kRows>
HWY_INLINE void add_rows(const float* a, const float* b, int64_t b_row, int64_t columns, float* sums) {
  const Floats d;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(d));
  int64_t j = 0;
  for (; j + kLanes <= columns; j += kLanes) {
    Vec sum = hn::LoadU(d, sums + j);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sum = hn::MulAdd(hn::Set(d, a[r]), hn::LoadU(d, b + r * b_row + j), sum);
    hn::StoreU(sum, d, sums + j);
  }
  if (j == columns) return;
  HWY_ALIGN float last[kLanes] = {}, lanes[kLanes] = {};
  std::copy_n(sums + j, columns - j, last);
  Vec sum = hn::Load(d, last);
  for (int r = 0; r < kRows; ++r) {
    std::copy_n(b + r * b_row + j, columns - j, lanes);
    sum = hn::MulAdd(hn::Set(d, a[r]), hn::Load(d, lanes), sum);
  }
  hn::Store(sum, d, last);
  std::copy_n(last, columns - j, sums + j);
}

// Multiplies by a matrix whose rows are dense.
void dense_rows(const RowProduct& p, int64_t begin, int64_t end, float* sums) {
  const int64_t columns = end - begin;
  float chunk[kColumns];
  for (int64_t first = 0; first < p.depth; first += p.chunk) {
    const int64_t last = std::min(first + p.chunk, p.depth);
    std::fill_n(chunk, columns, 0.f);
    int64_t k = first;
    const auto row = [&] { return p.b + k * p.b_depth + begin; };
    for (; k + 8 <= last; k += 8) add_rows<8>(p.a + k, row(), p.b_depth, columns, chunk);
    for (; k < last; ++k) add_rows<1>(p.a + k, row(), p.b_depth, columns, chunk);
    for (int64_t j = 0; j < columns; ++j) sums[j] = first == 0 ? chunk[j] : sums[j] + chunk[j];
  }
}

void columns_of_row(const RowProduct& p, int64_t begin, int64_t end) {
  for (int64_t first = begin; first < end; first += kColumns) {
    const int64_t last = std::min(first + kColumns, end);
    float sums[kColumns];
    p.b_depth == 1 ? dense_columns(p, first, last, sums) : dense_rows(p, first, last, sums);
    for (int64_t j = first; j < last; ++j) {
      float c = sums[j - first];
      if (p.bias != nullptr) c += p.bias[j];
      if (p.residual != nullptr) c += p.residual[j];
      p.c[j] = c;
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace sluice::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {
namespace {

HWY_EXPORT(columns_of_row);

}  // namespace

void multiply_row(const RowProduct& p, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(columns_of_row)(p, begin, end);
}

}  // namespace sluice::cpu
#endif
