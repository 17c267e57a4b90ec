#include "graph/ops/shaping.h"

#include <algorithm>
#include <numeric>

#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/extent.h"
#include "graph/ops/movement.h"

namespace sluice::ops {

Value squeeze(const Value& x, const std::optional<Ints>& dim) {
  Ints shape;
  std::vector<int> axes;
  for (int64_t d : dim.value_or(Ints{})) {
    axes.push_back(normalize_axis(d, x.rank(), "squeeze"));
    SLUICE_CHECK_KIND(kRuntime, std::count(axes.begin(), axes.end(), axes.back()) == 1,
                      "squeeze: dim {} appears multiple times in the list of dims", axes.back());
  }
  for (int i = 0; i < x.rank(); ++i) {
    const bool named = !dim || std::count(axes.begin(), axes.end(), i) > 0;
    if (!named || x.shape()[i] != 1) shape.push_back(x.shape()[i]);
  }
  return reshape(x, shape);
}

Value unsqueeze(const Value& x, int64_t dim) {
  Shape shape = x.shape();
  shape.insert(normalize_axis(dim, x.rank() + 1, "unsqueeze"), 1);
  return reshape(x, shape.vec());
}

Value flatten(const Value& x, int64_t start_dim, int64_t end_dim) {
  if (x.rank() == 0) return reshape(x, {1});
  const int first = normalize_axis(start_dim, x.rank(), "flatten"), last = normalize_axis(end_dim, x.rank(), "flatten");
  SLUICE_CHECK(first <= last, "flatten: start_dim {} is after end_dim {}; it must not be", start_dim, end_dim);
  if (first == last) return x;
  Ints shape;
  int64_t merged = 1;
  for (int i = 0; i < x.rank(); ++i) {
    if (i >= first && i <= last) merged *= x.shape()[i];
    if (i < first || i > last) shape.push_back(x.shape()[i]);
    if (i == last) shape.push_back(merged);
  }
  return reshape(x, shape);
}

Value transpose(const Value& x, int64_t dim0, int64_t dim1) {
  Ints dims(x.rank());
  std::iota(dims.begin(), dims.end(), 0);
  const int a = normalize_axis(dim0, x.rank(), "transpose"), b = normalize_axis(dim1, x.rank(), "transpose");
  if (a == b) return x;
  std::swap(dims[a], dims[b]);
  return permute(x, dims);
}

Value movedim(const Value& x, int64_t source, int64_t destination) {
  Ints dims(x.rank());
  std::iota(dims.begin(), dims.end(), 0);
  const int from = normalize_axis(source, x.rank(), "movedim"), to = normalize_axis(destination, x.rank(), "movedim");
  if (from == to) return x;
  dims.erase(dims.begin() + from);
  dims.insert(dims.begin() + to, from);
  return permute(x, dims);
}

Value narrow(const Value& x, int64_t dim, int64_t start, int64_t length) {
  const int axis = normalize_axis(dim, x.rank(), "narrow");
  SLUICE_CHECK_KIND(kIndex, x.rank() > 0, "narrow: the tensor has rank 0; it must have an axis");
  const int64_t size = x.shape()[axis], first = start < 0 ? start + size : start;
  SLUICE_CHECK_KIND(kIndex, first >= 0 && first <= size && length >= 0 && length <= size - first,
                    "narrow: range out of axis {}: start {}, length {}; must lie in [0, {}]", axis, start, length,
                    size);
  return slice_axis(x, axis, first, first + length);
}

Value select(const Value& x, int64_t dim, int64_t index) {
  const int axis = normalize_axis(dim, x.rank(), "select");
  SLUICE_CHECK_KIND(kIndex, x.rank() > 0, "select: the tensor has rank 0; it must have an axis");
  const int64_t size = x.shape()[axis];
  SLUICE_CHECK_KIND(kIndex, index >= -size && index < size, "select: index {} is out of axis {}; must be in [{}, {}]",
                    index, axis, -size, size - 1);
  Shape shape = x.shape();
  shape.erase(axis);
  return reshape(narrow(x, axis, index < 0 ? index + size : index, 1), shape.vec());
}

// More tensors than this at once are taken for a mistake: they would fill the memory, though x may be small (expand).
static void check_parts(const char* where, int64_t count) {
  constexpr int64_t kMost = int64_t{1} << 24;
  SLUICE_CHECK_KIND(kRuntime, count <= kMost, "{}: would give {} tensors; must be at most {}", where, count, kMost);
}

std::vector<Value> unbind(const Value& x, int64_t dim) {
  const int axis = normalize_axis(dim, x.rank(), "unbind");
  SLUICE_CHECK_KIND(kIndex, x.rank() > 0, "unbind: the tensor has rank 0; it must have an axis");
  check_parts("unbind", x.shape()[axis]);
  std::vector<Value> out;
  for (int64_t i = 0; i < x.shape()[axis]; ++i) out.push_back(select(x, axis, i));
  return out;
}

std::vector<Value> split(const Value& x, int64_t size, int64_t dim) {
  const int axis = normalize_axis(dim, x.rank(), "split");
  SLUICE_CHECK_KIND(kIndex, x.rank() > 0, "split: the tensor has rank 0; it must have an axis");
  SLUICE_CHECK(size > 0 || (size == 0 && x.shape()[axis] == 0),
               "split: size is {} of a tensor {}; must be positive, or 0 where the axis has no elements", size,
               x.shape().str());
  if (size > 0) check_parts("split", x.shape()[axis] / size);
  Ints sizes;
  for (int64_t left = x.shape()[axis]; left > 0 || sizes.empty(); left -= size) sizes.push_back(std::min(size, left));
  return split(x, sizes, axis);
}

std::vector<Value> split(const Value& x, const Ints& sizes, int64_t dim) {
  const int axis = normalize_axis(dim, x.rank(), "split");
  const Wide total = std::accumulate(sizes.begin(), sizes.end(), Wide{0});
  SLUICE_CHECK(x.rank() > 0 && total == x.shape()[axis],
               "split: sizes {} add up to {}, of axis {} of {}; they must add up to its size", attr_str(sizes), total,
               axis, x.shape().str());
  std::vector<Value> out;
  int64_t at = 0;
  for (int64_t size : sizes) {
    out.push_back(narrow(x, axis, at, size));
    at += size;
  }
  return out;
}

std::vector<Value> chunk(const Value& x, int64_t chunks, int64_t dim) {
  const int axis = normalize_axis(dim, x.rank(), "chunk");
  SLUICE_CHECK(chunks > 0 && x.rank() > 0, "chunk: {} chunks of a tensor {}; must be positive, of rank at least 1",
               chunks, x.shape().str());
  const int64_t size = x.shape()[axis];
  check_parts("chunk", size == 0 ? chunks : std::min(chunks, size));
  if (size == 0) return split(x, Ints(checked_dim(Wide{chunks}, "chunk"), 0), axis);  // as many as were asked for
  return split(x, size / chunks + (size % chunks != 0), axis);
}

Value stack(std::span<const Value> xs, int64_t dim) {
  std::vector<Value> raised;
  for (const Value& x : xs) {
    SLUICE_CHECK(x.shape() == xs[0].shape(), "stack: shapes differ: {} and {}; they must be equal", xs[0].shape().str(),
                 x.shape().str());
    raised.push_back(unsqueeze(x, dim));
  }
  SLUICE_CHECK(!xs.empty(), "stack: no tensors; give at least one");
  return concat(raised, normalize_axis(dim, xs[0].rank() + 1, "stack"));
}

Value tile(const Value& x, const Ints& repeats) {
  // Each repeat is an axis of its own, expanded and merged into the one after it.
  const int rank = std::max<int>(x.rank(), static_cast<int>(repeats.size()));
  Ints split_shape, merged;
  Shape expanded;
  for (int i = 0; i < rank; ++i) {
    const int own = i - (rank - x.rank()), given = i - (rank - static_cast<int>(repeats.size()));
    const int64_t size = own >= 0 ? x.shape()[own] : 1, times = given >= 0 ? repeats[given] : 1;
    SLUICE_CHECK(times >= 0, "tile: negative repeat: {}; must be >= 0", attr_str(repeats));
    if (times != 1) {
      split_shape.push_back(1);
      expanded.push_back(times);
    }
    split_shape.push_back(size);
    expanded.push_back(size);
    merged.push_back(checked_dim(Wide{size} * times, "tile"));
  }
  const Value y = reshape(expand(reshape(x, split_shape), expanded), merged);
  // Merging copies, unless an expanded axis merges with one of size 1: the repeats would be the same memory.
  return y.ptr() != x.ptr() && y.impl()->unshared() ? y : copy(y);
}

Value roll(const Value& x, const Ints& shifts, const Ints& dims) {
  SLUICE_CHECK_KIND(kRuntime, !shifts.empty(), "roll: `shifts` required: got none; give one for each dim");
  if (dims.empty() && shifts.size() == 1) return reshape(roll(flatten(x), shifts, {0}), x.shape().vec());
  SLUICE_CHECK(shifts.size() == dims.size(), "roll: {} shifts for {} dims; there must be one each", shifts.size(),
               dims.size());
  Value y = x;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int axis = normalize_axis(dims[i], x.rank(), "roll");
    const int64_t size = x.rank() ? x.shape()[axis] : 0;
    if (size == 0) continue;
    const int64_t shift = ((shifts[i] % size) + size) % size;
    if (shift == 0) continue;
    const Value parts[] = {narrow(y, axis, size - shift, shift), narrow(y, axis, 0, size - shift)};
    y = concat(parts, axis);
  }
  return y.ptr() == x.ptr() ? copy(x) : y;
}

namespace {

// Row minus column, compared with the diagonal.
Value triangle(const Value& x, int64_t diagonal, bool lower, const char* where_) {
  SLUICE_CHECK(x.rank() >= 2, "{}: rank is {}; must be at least 2", where_, x.rank());
  const int64_t rows = x.shape()[x.rank() - 2], columns = x.shape().back();
  const Value i = reshape(iota(0, 1, rows), {rows, 1}), j = iota(-static_cast<double>(diagonal), 1, columns);
  return masked_fill(x, lower ? lt(i, j) : gt(i, j), 0);
}

}  // namespace

Value tril(const Value& x, int64_t diagonal) { return triangle(x, diagonal, true, "tril"); }
Value triu(const Value& x, int64_t diagonal) { return triangle(x, diagonal, false, "triu"); }

}  // namespace sluice::ops
