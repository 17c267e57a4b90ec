// Ops that move elements.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/indexing.h"
#include "graph/ops/movement.h"
#include "graph/ops/shaping.h"
#include "onnx/table.h"
#include "tensor/tensor.h"

namespace sluice::onnx {
namespace {

Value ints_tensor(const Ints& values) {
  return Tensor::from_host({DType::kInt64, {static_cast<int64_t>(values.size())}}, values.data());
}

Value reshaped(const Call& c) {
  Ints shape = c.list("shape", 1);
  const Shape& from = c.in(0).shape();
  if (c.i("allowzero") == 0)
    for (size_t d = 0; d < shape.size(); ++d)
      if (shape[d] == 0) {
        SLUICE_CHECK(static_cast<int>(d) < from.rank(), "dim {} of the new shape is that of {}, which has none such", d,
                     from.str());
        shape[d] = from[static_cast<int>(d)];
      }
  // With an unknown size beside a size of 0, what is left follows from the others.
  return ops::reshape(c.in(0), shape);
}

Value transposed(const Call& c) {
  Ints dims(static_cast<size_t>(c.in(0).rank()));
  std::iota(dims.rbegin(), dims.rend(), 0);
  return ops::permute(c.in(0), c.is("perm", dims));
}

Value squeezed(const Call& c) {
  if (!c.has(1) && !c.has_attr("axes")) return ops::squeeze(c.in(0));
  const Ints axes = c.list("axes", 1);
  for (const int64_t axis : axes) {
    const int d = normalize_axis(axis, c.in(0).rank(), "axes");
    SLUICE_CHECK(c.in(0).shape()[d] == 1, "axis {} of {} is squeezed; must be of size 1", axis, c.in(0).shape().str());
  }
  return ops::squeeze(c.in(0), axes);
}

Value unsqueezed(const Call& c) {
  Ints axes = c.list("axes", 1);
  const int rank = c.in(0).rank() + static_cast<int>(axes.size());
  SLUICE_CHECK(rank <= kMaxRank, "{} dims; at most {} are supported", rank, kMaxRank);
  for (int64_t& axis : axes) axis = normalize_axis(axis, rank, "axes");
  std::sort(axes.begin(), axes.end());
  SLUICE_CHECK(std::adjacent_find(axes.begin(), axes.end()) == axes.end(),
               "an axis is named twice; must be named once");
  Value x = c.in(0);
  for (const int64_t axis : axes) x = ops::unsqueeze(x, axis);
  return x;
}

Value flattened(const Call& c) {
  const Shape& shape = c.in(0).shape();
  const int64_t axis = c.i("axis", 1);
  SLUICE_CHECK(axis >= -shape.rank() && axis <= shape.rank(), "axis {}; must be within {}", axis, shape.str());
  const int at = static_cast<int>(axis < 0 ? axis + shape.rank() : axis);
  int64_t rows = 1;
  for (int d = 0; d < at; ++d) rows *= shape[d];
  int64_t columns = 1;
  for (int d = at; d < shape.rank(); ++d) columns *= shape[d];
  return ops::reshape(c.in(0), {rows, columns});
}

Value sliced(const Call& c) {
  const Value& x = c.in(0);
  const bool old = c.version() < 10;
  const Ints starts = old ? c.is("starts") : c.ints(1), ends = old ? c.is("ends") : c.ints(2);
  Ints axes(starts.size());
  std::iota(axes.begin(), axes.end(), 0);
  axes = old ? c.is("axes", axes) : c.has(3) ? c.ints(3) : axes;
  const Ints steps = !old && c.has(4) ? c.ints(4) : Ints(starts.size(), 1);
  SLUICE_CHECK(ends.size() == starts.size() && axes.size() == starts.size() && steps.size() == starts.size(),
               "{} starts, {} ends, {} axes, {} steps; must be equally many", starts.size(), ends.size(), axes.size(),
               steps.size());
  Value y = x;
  for (size_t i = 0; i < starts.size(); ++i) {
    const int axis = normalize_axis(axes[i], x.rank(), "axes");
    const int64_t size = x.shape()[axis], step = steps[i];
    SLUICE_CHECK(step != 0, "a step of 0; must be another number");
    const auto bound = [&](int64_t at, int64_t low, int64_t high) {
      return std::clamp(at < 0 ? at + size : at, low, high);
    };
    if (step > 0) {
      const int64_t start = bound(starts[i], 0, size), stop = bound(ends[i], 0, size);
      y = ops::slice_axis(y, axis, start, std::max(start, stop), step);
    } else {  // of the elements turned around
      const int64_t start = bound(starts[i], -1, size - 1), stop = bound(ends[i], -1, size - 1);
      const int64_t first = size - 1 - start, last = size - 1 - stop;
      y = ops::slice_axis(ops::flip(y, {axis}), axis, first, std::max(first, last), step == INT64_MIN ? size : -step);
    }
  }
  return y;
}

std::vector<int64_t> split_sizes(const Call& c, int64_t size) {
  if (c.has(1) || c.has_attr("split")) return c.list("split", 1);
  const auto n = static_cast<int64_t>(c.outputs());
  const int64_t each = (size + n - 1) / n;
  Ints sizes(static_cast<size_t>(n), each);
  sizes.back() = std::max<int64_t>(size - each * (n - 1), 0);
  return sizes;
}

std::vector<Value> pieces(const Value& x, const Ints& sizes, int64_t axis) {
  int64_t total = 0;
  for (const int64_t size : sizes) {
    SLUICE_CHECK(size >= 0, "a part of size {}; must not be negative", size);
    total = static_cast<int64_t>(checked_add(static_cast<uint64_t>(total), static_cast<uint64_t>(size)));
  }
  SLUICE_CHECK(total == x.shape()[static_cast<int>(axis)], "parts of {} in all along axis {} of {}; must be all of it",
               total, axis, x.shape().str());
  return ops::split(x, sizes, axis);
}

Items split(const Call& c) {
  const int64_t axis = normalize_axis(c.i("axis"), c.in(0).rank(), "axis");
  return pieces(c.in(0), split_sizes(c, c.in(0).shape()[static_cast<int>(axis)]), axis);
}

Value shape_of(const Call& c) {
  const Ints shape = c.in(0).shape().vec();
  const auto rank = static_cast<int64_t>(shape.size());
  const auto bound = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  const int64_t start = bound(c.i("start")), end = std::max(start, bound(c.i("end", rank)));
  return ints_tensor(Ints(shape.begin() + start, shape.begin() + end));
}

Value expanded(const Call& c) {
  const Shape to = broadcast_shapes(c.in(0).shape(), Shape(c.ints(1)), "shape");
  return ops::expand(c.in(0), to);
}

Value tiled(const Call& c) {
  const Ints repeats = c.ints(1);
  SLUICE_CHECK(static_cast<int>(repeats.size()) == c.in(0).rank(), "{} repeats of {}; must be one of each dim",
               repeats.size(), c.in(0).shape().str());
  return ops::tile(c.in(0), repeats);
}

// Positions of a padded axis in the axis itself, for the modes that repeat elements.
Ints sources(int64_t size, int64_t low, int64_t high, const std::string& mode) {
  Ints from;
  for (int64_t i = -low; i < size + high; ++i) {
    int64_t at = i;
    if (mode == "edge") at = std::clamp<int64_t>(i, 0, size - 1);
    if (mode == "wrap") at = ((i % size) + size) % size;
    if (mode == "reflect" && size > 1) {
      const int64_t period = 2 * (size - 1);
      at = ((i % period) + period) % period;
      if (at >= size) at = period - at;
    }
    from.push_back(mode == "reflect" && size == 1 ? 0 : at);
  }
  return from;
}

Value padded(const Call& c) {
  Value x = c.in(0);
  const Ints pads = c.version() < 11 ? c.is("pads") : c.ints(1);
  Ints axes(static_cast<size_t>(x.rank()));
  std::iota(axes.begin(), axes.end(), 0);
  if (c.has(3)) axes = c.ints(3);
  SLUICE_CHECK(pads.size() == 2 * axes.size(), "{} pads of {} axes; must be two of each", pads.size(), axes.size());
  Ints low(static_cast<size_t>(x.rank()), 0), high = low;
  const std::string mode = c.s("mode", "constant");
  for (size_t i = 0; i < axes.size(); ++i) {
    const int axis = normalize_axis(axes[i], x.rank(), "axes");
    const auto cut = [&](int64_t pad) { return std::max<int64_t>(-pad, 0); };
    const int64_t size = x.shape()[axis], begin = pads[i], end = pads[i + axes.size()];
    SLUICE_CHECK(cut(begin) + cut(end) <= size, "{} elements are cut from axis {} of {}; it has fewer",
                 cut(begin) + cut(end), axis, x.shape().str());
    x = ops::narrow(x, axis, cut(begin), size - cut(begin) - cut(end));
    low[static_cast<size_t>(axis)] = std::max<int64_t>(begin, 0);
    high[static_cast<size_t>(axis)] = std::max<int64_t>(end, 0);
  }
  if (mode == "constant") {
    const double value = c.version() < 11 ? c.f("value") : c.has(2) ? c.number(2) : 0;
    return ops::pad(x, low, high, value);
  }
  SLUICE_CHECK(mode == "edge" || mode == "reflect" || mode == "wrap",
               "mode '{}'; must be constant, edge, reflect or wrap", mode);
  for (int d = 0; d < x.rank(); ++d) {
    const int64_t l = low[static_cast<size_t>(d)], h = high[static_cast<size_t>(d)];
    if (l == 0 && h == 0) continue;
    SLUICE_CHECK(x.shape()[d] > 0, "axis {} has no elements; mode '{}' repeats some", d, mode);
    x = ops::index_select(x, ints_tensor(sources(x.shape()[d], l, h, mode)), d);
  }
  return x;
}

Value depth_to_space(const Call& c) {
  const Shape& s = c.in(0).shape();
  const int64_t b = c.i("blocksize");
  SLUICE_CHECK(s.rank() == 4 && b > 0 && s[1] % (b * b) == 0,
               "{} by blocks of {}; must be (N, C, H, W) with C a multiple", s.str(), b);
  const int64_t depth = s[1] / (b * b);
  const bool crd = c.s("mode", "DCR") == "CRD";
  const Value apart =
      ops::reshape(c.in(0), crd ? Ints{s[0], depth, b, b, s[2], s[3]} : Ints{s[0], b, b, depth, s[2], s[3]});
  const Value moved = ops::permute(apart, crd ? Ints{0, 1, 4, 2, 5, 3} : Ints{0, 3, 4, 1, 5, 2});
  return ops::reshape(moved, {s[0], depth, s[2] * b, s[3] * b});
}

Value space_to_depth(const Call& c) {
  const Shape& s = c.in(0).shape();
  const int64_t b = c.i("blocksize");
  SLUICE_CHECK(s.rank() == 4 && b > 0 && s[2] % b == 0 && s[3] % b == 0,
               "{} by blocks of {}; must be (N, C, H, W) with H and W multiples", s.str(), b);
  const Value apart = ops::reshape(c.in(0), {s[0], s[1], s[2] / b, b, s[3] / b, b});
  const bool crd = c.s("mode", "DCR") == "CRD";
  const Value moved = ops::permute(apart, crd ? Ints{0, 1, 3, 5, 2, 4} : Ints{0, 3, 5, 1, 2, 4});
  return ops::reshape(moved, {s[0], s[1] * b * b, s[2] / b, s[3] / b});
}

// The middle of each axis, or zeros around it.
Value centered(const Call& c) {
  Value x = c.in(0);
  const Ints sizes = c.ints(1);
  Ints axes(sizes.size());
  std::iota(axes.begin(), axes.end(), 0);
  axes = c.is("axes", axes);
  SLUICE_CHECK(axes.size() == sizes.size(), "{} axes of {} sizes; must be equally many", axes.size(), sizes.size());
  Ints low(static_cast<size_t>(x.rank()), 0), high = low;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int axis = normalize_axis(axes[i], x.rank(), "axes");
    const int64_t size = x.shape()[axis], wanted = sizes[i];
    SLUICE_CHECK(wanted >= 0, "a size of {}; must not be negative", wanted);
    if (wanted < size) x = ops::narrow(x, axis, (size - wanted) / 2, wanted);
    if (wanted > size) {
      low[static_cast<size_t>(axis)] = (wanted - size) / 2;
      high[static_cast<size_t>(axis)] = wanted - size - (wanted - size) / 2;
    }
  }
  return ops::pad(x, low, high);
}

Value triangle(const Call& c) {
  const int64_t k = c.has(1) ? c.integer(1) : 0;
  return c.i("upper", 1) != 0 ? ops::triu(c.in(0), k) : ops::tril(c.in(0), k);
}

Value reversed(const Call& c) {
  const int64_t time = c.i("time_axis"), batch = c.i("batch_axis", 1);
  const Value& x = c.in(0);
  SLUICE_CHECK(x.rank() >= 2 && time != batch && time >= 0 && time <= 1 && batch >= 0 && batch <= 1,
               "time axis {} and batch axis {}; must be 0 and 1", time, batch);
  const int64_t steps = x.shape()[static_cast<int>(time)];
  Value rows = ops::reshape(ops::iota(0, 1, steps), time == 0 ? Ints{steps, 1} : Ints{1, steps});
  const Value lengths = ops::unsqueeze(ops::cast(c.in(1), DType::kInt64), time);
  Value from = ops::where(ops::lt(rows, lengths), ops::sub(ops::sub(lengths, 1), rows), rows);
  while (from.rank() < x.rank()) from = ops::unsqueeze(from, -1);
  return ops::gather(x, ops::expand(from, x.shape()), time);
}

}  // namespace

Entries shape_entries() {
  return {
      {"CenterCropPad", centered, 2},
      {"Concat", [](const Call& c) { return ops::concat(c.tensors(), c.i("axis")); }},
      {"DepthToSpace", depth_to_space},
      {"Expand", expanded, 2},
      {"Flatten", flattened},
      {"Pad", padded, 14},
      {"Reshape", reshaped, 2},
      {"ReverseSequence", reversed},
      {"Shape", shape_of},
      {"Size", [](const Call& c) { return ops::full({}, static_cast<double>(numel(c.in(0).shape())), DType::kInt64); }},
      {"Slice", sliced, 30},
      {"SpaceToDepth", space_to_depth},
      {"Split", split, 2},
      {"Squeeze", squeezed, 2},
      {"Tile", tiled, 2},
      {"Transpose", transposed},
      {"Trilu", triangle, 2},
      {"Unsqueeze", unsqueezed, 2},
  };
}

}  // namespace sluice::onnx
