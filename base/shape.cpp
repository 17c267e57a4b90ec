#include "base/shape.h"

#include <limits>
#include <numeric>

#include "base/error.h"

namespace sluice {

Shape::Shape(std::span<const int64_t> dims) {
  SLUICE_CHECK(dims.size() <= kMaxRank, "shape: too many dimensions: {}; at most {} are supported", dims.size(),
               kMaxRank);
  std::copy(dims.begin(), dims.end(), dims_.begin());
  rank_ = static_cast<int>(dims.size());
}

Shape Shape::filled(int rank, int64_t value) {
  Shape s;
  for (int i = 0; i < rank; ++i) s.push_back(value);
  return s;
}

void Shape::push_back(int64_t dim) { insert(rank_, dim); }

void Shape::insert(int at, int64_t dim) {
  SLUICE_CHECK(rank_ < kMaxRank, "shape: too many dimensions: {}; at most {} are supported", rank_ + 1, kMaxRank);
  std::copy_backward(begin() + at, end(), end() + 1);
  dims_[at] = dim;
  ++rank_;
}

void Shape::erase(int at) {
  std::copy(begin() + at + 1, end(), begin() + at);
  --rank_;
}

std::string Shape::str() const {
  std::string s = "(";
  for (int i = 0; i < rank_; ++i) s += fmt::format("{}{}", i ? ", " : "", dims_[i]);
  return s + (rank_ == 1 ? ",)" : ")");
}

int64_t numel(const Shape& shape) {
  // The size without empty axes must fit as well: strides are computed from it.
  int64_t n = 1;
  bool empty = false, overflow = false;
  for (int64_t d : shape) {
    SLUICE_CHECK(d >= 0, "shape: negative dimension: {}; every dimension must be >= 0", shape.str());
    empty |= d == 0;
    if (d != 0) overflow |= __builtin_mul_overflow(n, d, &n);
  }
  SLUICE_CHECK(!overflow, "shape: size overflows: {}; the number of elements must fit 63 bits", shape.str());
  return empty ? 0 : n;
}

uint64_t checked_bytes(const Shape& shape, uint64_t elem_size) {
  return checked_mul(static_cast<uint64_t>(numel(shape)), elem_size);
}

uint64_t checked_add(uint64_t a, uint64_t b) {
  uint64_t r;
  SLUICE_CHECK(!__builtin_add_overflow(a, b, &r), "size: overflow: {} + {}; sizes must fit 64 bits", a, b);
  return r;
}

uint64_t checked_mul(uint64_t a, uint64_t b) {
  uint64_t r;
  SLUICE_CHECK(!__builtin_mul_overflow(a, b, &r), "size: overflow: {} * {}; sizes must fit 64 bits", a, b);
  return r;
}

uint64_t align_up(uint64_t bytes, uint64_t alignment) { return checked_add(bytes, alignment - 1) & ~(alignment - 1); }

namespace {

Strides strides_in_order(const Shape& shape, std::span<const int> fastest_first) {
  Strides s = Shape::filled(shape.rank(), 1);
  int64_t step = 1;
  for (int axis : fastest_first) {
    s[axis] = step;
    SLUICE_CHECK(!__builtin_mul_overflow(step, std::max<int64_t>(shape[axis], 1), &step),
                 "shape: size overflows: {}; the number of elements must fit 63 bits", shape.str());
  }
  return s;
}

}  // namespace

Strides contiguous_strides(const Shape& shape) {
  std::array<int, kMaxRank> order;
  for (int i = 0; i < shape.rank(); ++i) order[i] = shape.rank() - 1 - i;
  return strides_in_order(shape, std::span(order).first(shape.rank()));
}

Strides channels_last_strides(const Shape& shape) {
  SLUICE_CHECK(shape.rank() >= 3, "channels_last: rank is {}; must be at least 3 (N, C, spatial...)", shape.rank());
  std::array<int, kMaxRank> order;
  int n = 0;
  order[n++] = 1;
  for (int i = shape.rank() - 1; i >= 2; --i) order[n++] = i;
  order[n++] = 0;
  return strides_in_order(shape, std::span(order).first(n));
}

bool is_contiguous(const Shape& shape, const Strides& strides) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return true;
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[i] != step) return false;
    if (__builtin_mul_overflow(step, shape[i], &step)) return false;
  }
  return true;
}

bool is_dense(const Shape& shape, const Strides& strides) {
  std::array<int, kMaxRank> order{};
  int n = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1) order[n++] = i;
  }
  for (int i = 1; i < n; ++i)  // insertion sort by stride: at most kMaxRank axes
    for (int j = i; j > 0 && strides[order[j]] < strides[order[j - 1]]; --j) std::swap(order[j], order[j - 1]);
  int64_t step = 1;
  for (int i = 0; i < n; ++i) {
    if (strides[order[i]] != step || __builtin_mul_overflow(step, shape[order[i]], &step)) return false;
  }
  return true;
}

int64_t storage_extent(const Shape& shape, const Strides& strides) {
  int64_t extent = 1;
  bool overflow = false;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 0) return 0;
    int64_t span = 0;
    overflow |= __builtin_mul_overflow(shape[i] - 1, strides[i], &span);
    overflow |= __builtin_add_overflow(extent, span, &extent);
  }
  SLUICE_CHECK(!overflow, "size: overflow: shape {} with strides {}; sizes must fit 64 bits", shape.str(),
               strides.str());
  return extent;
}

Shape broadcast_shapes(const Shape& a, const Shape& b, const char* where) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  Shape out = longer;
  const int shift = longer.rank() - shorter.rank();
  for (int i = 0; i < shorter.rank(); ++i) {
    const int64_t x = longer[i + shift], y = shorter[i];
    SLUICE_CHECK(x == y || x == 1 || y == 1,
                 "{}: shapes do not broadcast: {} and {} differ at axis {}; sizes must be equal or 1", where, a.str(),
                 b.str(), i + shift);
    out[i + shift] = x == 1 ? y : x;
  }
  return out;
}

int normalize_axis(int64_t axis, int rank, const char* where) {
  const int64_t low = rank == 0 ? -1 : -rank, high = rank == 0 ? 0 : rank - 1;
  SLUICE_CHECK_KIND(kIndex, axis >= low && axis <= high, "{}: axis out of range: {}; must be in [{}, {}]", where, axis,
                    low, high);
  return static_cast<int>(axis < 0 ? axis + std::max(rank, 1) : axis);
}

}  // namespace sluice
