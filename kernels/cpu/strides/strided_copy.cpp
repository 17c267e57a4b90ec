#include "kernels/cpu/strides/strided_copy.h"

#include <cstring>

#include "kernels/cpu/math/vector_math.h"
#include "kernels/cpu/strides/spread.h"
#include "kernels/cpu/strides/tiles.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kStridedCopyGrain = 32768;  // elements worth a thread
constexpr int64_t kBlock = 32;                // edge of a transposed block, in elements
constexpr int64_t kAtOnce = 4;                // and of a part of it that is turned in registers
constexpr int64_t kLongRow = 4096;            // elements of a row that threads may share
constexpr int64_t kShortRow = 16;             // elements that are copied sooner than a call is made

LoopNest nest_of(const Shape& shape, const Strides& from, const Strides& to) {
  const std::array<Strides, 2> strides = {from, to};
  return LoopNest(shape, strides);
}

// y[r * y_step + c] = x[c * x_step + r], of multiples of kAtOnce rows and columns. The data that the next block reads,
// if there is one, is on its way meanwhile.
template <class E>
SLUICE_INLINE void turn_block(const E* x, int64_t x_step, int64_t rows, int64_t columns, const E* next, E* y,
                              int64_t y_step) {
  constexpr int64_t kLine = 64 / sizeof(E);
  typedef E V __attribute__((vector_size(kAtOnce * sizeof(E))));
  for (int64_t c = 0; c < columns; c += kAtOnce) {
    for (int64_t i = 0; next != nullptr && i < kAtOnce; ++i)
      for (int64_t r = 0; r < rows; r += kLine) __builtin_prefetch(next + (c + i) * x_step + r);
    for (int64_t r = 0; r < rows; r += kAtOnce) {
      V v[kAtOnce];
      for (int64_t i = 0; i < kAtOnce; ++i) std::memcpy(&v[i], x + (c + i) * x_step + r, sizeof(V));
      const V low[] = {__builtin_shufflevector(v[0], v[1], 0, 4, 1, 5),
                       __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5)};
      const V high[] = {__builtin_shufflevector(v[0], v[1], 2, 6, 3, 7),
                        __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7)};
      const V turned[] = {
          __builtin_shufflevector(low[0], low[1], 0, 1, 4, 5), __builtin_shufflevector(low[0], low[1], 2, 3, 6, 7),
          __builtin_shufflevector(high[0], high[1], 0, 1, 4, 5), __builtin_shufflevector(high[0], high[1], 2, 3, 6, 7)};
      for (int64_t i = 0; i < kAtOnce; ++i) std::memcpy(y + (r + i) * y_step + c, &turned[i], sizeof(V));
    }
  }
}

// The same as turn_block, for any numbers of rows and columns.
template <class E>
void turn_part(const E* x, int64_t x_step, int64_t rows, int64_t columns, const E* next, E* y, int64_t y_step) {
  constexpr bool kTurns = sizeof(E) == 4 || sizeof(E) == 8;
  const int64_t whole_rows = kTurns ? rows / kAtOnce * kAtOnce : 0, whole = kTurns ? columns / kAtOnce * kAtOnce : 0;
  if constexpr (kTurns) turn_block(x, x_step, whole_rows, whole, next, y, y_step);
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = c < whole ? whole_rows : 0; r < rows; ++r) y[r * y_step + c] = x[c * x_step + r];
}

// Blocks go through a small buffer, so that memory on both sides is touched in whole cache lines; rows of one block
// are.
template <class E>
void transpose_strip(const char* from, char* to, int64_t rows, int64_t columns, int64_t column_step, int64_t row_step) {
  const E* x = reinterpret_cast<const E*>(from);
  E* y = reinterpret_cast<E*>(to);
  constexpr int64_t kRow = kBlock + 4;
  alignas(64) E buffer[kBlock * kRow];
  if (columns <= kBlock) return turn_part<E>(x, column_step, rows, columns, nullptr, y, row_step);
  for (int64_t c = 0; c < columns; c += kBlock) {
    const int64_t n = std::min(columns - c, kBlock);
    const E* block = x + c * column_step;
    const E* next = c + 2 * kBlock <= columns ? block + kBlock * column_step : nullptr;
    if constexpr (sizeof(E) == 4 || sizeof(E) == 8) {
      if (rows == kBlock && n == kBlock) {
        turn_block(block, column_step, kBlock, kBlock, next, buffer, kRow);
        for (int64_t r = 0; r < kBlock; ++r) std::memcpy(y + r * row_step + c, buffer + r * kRow, kBlock * sizeof(E));
        continue;
      }
    }
    turn_part(block, column_step, rows, n, next, buffer, kRow);
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(y + r * row_step + c, buffer + r * kRow, static_cast<size_t>(n) * sizeof(E));
  }
}

// Backwards, as flip() does, of several instruction sets.
template <class E>
SLUICE_INLINE void copy_reversed(const E* x, E* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[-i];
}
SLUICE_CLONES void copy_backwards(const uint8_t* x, uint8_t* y, int64_t n) { copy_reversed(x, y, n); }
SLUICE_CLONES void copy_backwards(const uint16_t* x, uint16_t* y, int64_t n) { copy_reversed(x, y, n); }
SLUICE_CLONES void copy_backwards(const uint32_t* x, uint32_t* y, int64_t n) { copy_reversed(x, y, n); }
SLUICE_CLONES void copy_backwards(const uint64_t* x, uint64_t* y, int64_t n) { copy_reversed(x, y, n); }
void copy_backwards(const Bytes16* x, Bytes16* y, int64_t n) { copy_reversed(x, y, n); }

template <class E>
void copy_elements(const char* from, char* to, int64_t from_step, int64_t to_step, int64_t n) {
  const E* x = reinterpret_cast<const E*>(from);
  E* y = reinterpret_cast<E*>(to);
  if (from_step == 0 && to_step == 1) {
    spread(sizeof(E), x, 1, n, y);
  } else if (from_step == -1 && to_step == 1) {
    copy_backwards(x, y, n);
  } else if (to_step == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i * from_step];
  } else {
    for (int64_t i = 0; i < n; ++i) y[i * to_step] = x[i * from_step];
  }
}

}  // namespace

StridedCopy::StridedCopy(const Shape& shape, const Strides& from, const Strides& to, size_t element_size)
    : size_(static_cast<int64_t>(element_size)), nest_(nest_of(shape, from, to)), outer_(nest_) {
  // The axis along which `from` is contiguous, when it is one of the outer ones.
  int row_axis = -1;
  for (int axis = 0; axis < nest_.outer_rank(); ++axis)
    if (nest_.outer_stride(0, axis) == 1 && nest_.outer_dim(axis) >= 8) row_axis = axis;
  blocked_ = row_axis >= 0 && nest_.inner() >= 8 && nest_.inner_stride(1) == 1 && nest_.inner_stride(0) > 1;
  by_rows_ = !blocked_ && nest_.outer_rank() > 0 && nest_.inner() < kLongRow;
  if (by_rows_) {
    Shape around;
    std::array<Strides, 2> steps;
    for (int axis = 0; axis < nest_.outer_rank(); ++axis) {
      around.push_back(nest_.outer_dim(axis));
      for (int k = 0; k < 2; ++k) steps[k].push_back(nest_.outer_stride(k, axis));
    }
    outer_ = LoopNest::in_order(around, steps);
  }
  if (!blocked_) return;
  rows_ = nest_.outer_dim(row_axis);
  row_step_ = nest_.outer_stride(1, row_axis);
  columns_ = nest_.inner();
  column_step_ = nest_.inner_stride(0);
  strips_ = (rows_ + kBlock - 1) / kBlock;
  Shape rest;
  Strides rest_from, rest_to;
  for (int axis = 0; axis < nest_.outer_rank(); ++axis) {
    if (axis == row_axis) continue;
    rest.push_back(nest_.outer_dim(axis));
    rest_from.push_back(nest_.outer_stride(0, axis));
    rest_to.push_back(nest_.outer_stride(1, axis));
  }
  outer_ = nest_of(rest, rest_from, rest_to);
}

void StridedCopy::run(const void* from, void* to, int threads) const {
  const char* x = static_cast<const char*>(from);
  char* y = static_cast<char*>(to);
  if (nest_.size() == 0) return;
  if (blocked_) {
    const int64_t strip = std::min(rows_, kBlock) * columns_;
    parallel_ranges(threads, outer_.size() * strips_, std::max<int64_t>(kStridedCopyGrain / strip, 1),
                    [&](int64_t begin, int64_t end) { run_blocks(x, y, begin, end); });
  } else if (by_rows_) {
    parallel_ranges(threads, outer_.size(), std::max<int64_t>(kStridedCopyGrain / nest_.inner(), 1),
                    [&](int64_t begin, int64_t end) { run_rows(x, y, begin, end); });
  } else {
    parallel_ranges(threads, nest_.size(), kStridedCopyGrain,
                    [&](int64_t begin, int64_t end) { run_segments(x, y, begin, end); });
  }
}

void StridedCopy::run_segments(const char* from, char* to, int64_t begin, int64_t end) const {
  const int64_t from_step = nest_.inner_stride(0), to_step = nest_.inner_stride(1);
  nest_.for_segments(begin, end, [&](const auto& offsets, int64_t n) {
    const char* x = from + offsets[0] * size_;
    char* y = to + offsets[1] * size_;
    if (n == 1 || (from_step == 1 && to_step == 1))
      std::memcpy(y, x, static_cast<size_t>(n * size_));
    else
      with_element_of_size(static_cast<size_t>(size_),
                           [&](auto e) { copy_elements<decltype(e)>(x, y, from_step, to_step, n); });
  });
}

void StridedCopy::run_rows(const char* from, char* to, int64_t begin, int64_t end) const {
  const int64_t n = nest_.inner(), from_step = nest_.inner_stride(0), to_step = nest_.inner_stride(1);
  const bool dense = from_step == 1 && to_step == 1, backwards = from_step == -1 && to_step == 1;
  outer_.for_segments(begin, end, [&](const auto& offsets, int64_t rows) {
    with_element_of_size(static_cast<size_t>(size_), [&](auto e) {
      using E = decltype(e);
      const E* x = reinterpret_cast<const E*>(from) + offsets[0];
      E* y = reinterpret_cast<E*>(to) + offsets[1];
      const int64_t down_x = outer_.inner_stride(0), down_y = outer_.inner_stride(1);
      for (int64_t r = 0; r < rows; ++r, x += down_x, y += down_y) {
        if (dense && n >= kShortRow)
          std::memcpy(y, x, static_cast<size_t>(n) * sizeof(E));
        else if (backwards && n >= kShortRow)
          copy_backwards(x, y, n);
        else
          for (int64_t i = 0; i < n; ++i) y[i * to_step] = x[i * from_step];
      }
    });
  });
}

void StridedCopy::run_blocks(const char* from, char* to, int64_t begin, int64_t end) const {
  // One unit of work is a strip of up to kBlock rows of one outer element.
  for (int64_t unit = begin; unit < end;) {
    const int64_t element = unit / strips_;
    const int64_t last = std::min(end, (element + 1) * strips_);
    outer_.for_segments(element, element + 1, [&](const auto& offsets, int64_t) {
      for (; unit < last; ++unit) {
        const int64_t row = unit % strips_ * kBlock, rows = std::min(kBlock, rows_ - row);
        const char* x = from + (offsets[0] + row) * size_;
        char* y = to + (offsets[1] + row * row_step_) * size_;
        with_element_of_size(static_cast<size_t>(size_), [&](auto e) {
          transpose_strip<decltype(e)>(x, y, rows, columns_, column_step_, row_step_);
        });
      }
    });
  }
}

StridedFill::StridedFill(const TensorSpec& to, double value)
    : nest_(nest_of(to.shape, to.strides, to.strides)), size_(static_cast<int64_t>(dtype_size(to.dtype))) {
  if (tile_type(to.dtype) == TileType::kInt64 && to.dtype != DType::kBool) {
    const int64_t whole = static_cast<int64_t>(value);
    tile_store(TileType::kInt64, to.dtype)(&whole, element_, 1, 1);
  } else {
    tile_store(TileType::kDouble, to.dtype)(&value, element_, 1, 1);
  }
}

void StridedFill::run(void* to, int threads) const {
  parallel_ranges(threads, nest_.size(), kStridedCopyGrain, [&](int64_t begin, int64_t end) {
    nest_.for_segments(begin, end, [&](const auto& offsets, int64_t n) {
      char* y = static_cast<char*>(to) + offsets[0] * size_;
      if (nest_.inner_stride(0) == 1) return spread(size_, element_, 1, n, y);
      with_element_of_size(static_cast<size_t>(size_), [&](auto e) {
        using E = decltype(e);
        for (int64_t i = 0; i < n; ++i)
          reinterpret_cast<E*>(y)[i * nest_.inner_stride(0)] = *reinterpret_cast<const E*>(element_);
      });
    });
  });
}

}  // namespace sluice::cpu
