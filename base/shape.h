#pragma once
// Dimensions of tensors: a small inline vector, never on the heap.
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace sluice {

inline constexpr int kMaxRank = 8;

// Up to kMaxRank int64 values: shapes, strides, axes. Throws kValue beyond kMaxRank.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims);
  explicit Shape(const std::vector<int64_t>& dims) : Shape(std::span<const int64_t>(dims)) {}
  static Shape filled(int rank, int64_t value);

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[i]; }
  int64_t& operator[](int i) { return dims_[i]; }
  int64_t back() const { return dims_[rank_ - 1]; }
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return dims_.data() + rank_; }
  int64_t* begin() { return dims_.data(); }
  int64_t* end() { return dims_.data() + rank_; }
  bool empty() const { return rank_ == 0; }
  void push_back(int64_t dim);
  void insert(int at, int64_t dim);
  void erase(int at);
  std::vector<int64_t> vec() const { return {begin(), end()}; }
  std::string str() const;  // "(4, 3)"
  bool operator==(const Shape& o) const { return rank_ == o.rank_ && std::equal(begin(), end(), o.begin()); }

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

using Strides = Shape;  // in elements

// Product of the dims; throws kValue on a negative dim or on overflow. The one place sizes are multiplied.
int64_t numel(const Shape& shape);
// numel * elem_size, checked for overflow.
uint64_t checked_bytes(const Shape& shape, uint64_t elem_size);
uint64_t checked_add(uint64_t a, uint64_t b);
uint64_t checked_mul(uint64_t a, uint64_t b);
// `bytes` rounded up to a multiple of `alignment` (a power of two), checked.
uint64_t align_up(uint64_t bytes, uint64_t alignment);

Strides contiguous_strides(const Shape& shape);
// Strides of the channels-last order (N, spatial..., C) for rank >= 3.
Strides channels_last_strides(const Shape& shape);
bool is_contiguous(const Shape& shape, const Strides& strides);
// True when the elements fill one gap-free block in some order of the axes.
bool is_dense(const Shape& shape, const Strides& strides);
// Elements spanned from the first to the last one addressed; 0 when empty.
int64_t storage_extent(const Shape& shape, const Strides& strides);

// numpy's broadcast of two shapes; `where` names the op in the error.
Shape broadcast_shapes(const Shape& a, const Shape& b, const char* where);
// `axis` in [-rank, rank) as a non-negative axis; throws kIndex otherwise.
int normalize_axis(int64_t axis, int rank, const char* where);

}  // namespace sluice
