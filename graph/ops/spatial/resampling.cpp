#include "graph/ops/resampling.h"

#include <array>
#include <cmath>

#include "graph/executor.h"
#include "graph/ops/activation.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/indexing.h"
#include "graph/ops/matmul.h"
#include "graph/ops/movement.h"
#include "graph/ops/norm_common.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"
#include "graph/ops/taps.h"
#include "graph/tape.h"

namespace sluice::ops {
namespace {

// Weights of the four pixels around a point that lies `t` after the second: cubics that meet smoothly, with torch's a.
std::array<Value, 4> cubic_weights(const Value& t) {
  constexpr double a = -0.75;
  const auto inner = [](const Value& d) { return add(mul(mul(sub(mul(d, a + 2), a + 3), d), d), 1); };
  const auto outer = [](const Value& d) { return sub(mul(add(mul(sub(mul(d, a), 5 * a), d), 8 * a), d), 4 * a); };
  const Value rest = sub(1.0, t);
  return {outer(add(t, 1)), inner(t), inner(rest), outer(add(rest, 1))};
}

Value bounded(const Value& x, double low, double high) { return clamp(x, Operand(low), Operand(high)); }

// The pixel nearest to a whole position; of NaN, the first.
Value as_index(const Value& position, int64_t size) {
  const double last = static_cast<double>(size - 1);
  return cast(where(gt(position, 0), where(lt(position, last), position, last), 0.0), DType::kInt64);
}

// One dim of a resize.
struct Axis {
  int axis;
  int64_t in, out;
  double scale;  // of a step in the result, in pixels
  DType dtype;   // of coordinates

  Value steps() const { return iota(0, 1, out, dtype); }
};

Value nearest(const Value& x, const Axis& a, bool exact) {
  const Value at = exact ? add(a.steps(), 0.5) : a.steps();
  return index_select(x, as_index(floor(mul(at, a.scale)), a.in), a.axis);
}

// The place of each element of the result among the pixels.
Value centres(const Axis& a, bool align_corners) {
  return align_corners ? mul(a.steps(), a.scale) : sub(mul(add(a.steps(), 0.5), a.scale), 0.5);
}

Value linear_along(const Value& x, const Axis& a, bool align_corners) {
  const Value at = clamp(centres(a, align_corners), Operand(0.0), std::nullopt);
  const Value first = bounded(floor(at), 0, static_cast<double>(a.in - 1));
  const Value weight = bounded(sub(at, first), 0, 1);
  const Value index[] = {as_index(first, a.in), as_index(add(first, 1), a.in)};
  const Value weights[] = {sub(1.0, weight), weight};
  return weighted_taps(x, stack(index, 1), stack(weights, 1), a.axis);
}

Value cubic_along(const Value& x, const Axis& a, bool align_corners) {
  const Value at = centres(a, align_corners), first = floor(at);
  const std::array<Value, 4> weights = cubic_weights(sub(at, first));
  std::vector<Value> index;
  for (int i = 0; i < 4; ++i) index.push_back(as_index(add(first, i - 1), a.in));
  return weighted_taps(x, stack(index, 1), stack(weights, 1), a.axis);
}

// A matrix (out, in) of a triangle's or a cubic's values around each centre, as wide as a step, that add up to 1.
Value antialiased_along(const Value& x, const Axis& a, bool cubic) {
  const double wide = std::max(a.scale, 1.0), support = (cubic ? 2 : 1) * wide;
  const Value centre = reshape(mul(add(a.steps(), 0.5), a.scale), {a.out, 1});
  const Value pixel = reshape(iota(0, 1, a.in, a.dtype), {1, a.in});
  const Value low = trunc(add(sub(centre, support), 0.5)), high = trunc(add(add(centre, support), 0.5));
  const Value d = abs(mul(add(sub(pixel, centre), 0.5), 1 / wide));
  Value weight;
  if (cubic) {
    constexpr double c = -0.5;
    const Value near = add(mul(mul(sub(mul(d, c + 2), c + 3), d), d), 1);
    const Value far = mul(sub(mul(add(mul(sub(d, 5), d), 8), d), 4), c);
    weight = where(lt(d, 1), near, where(lt(d, 2), far, 0.0));
  } else {
    weight = clamp(sub(1.0, d), Operand(0.0), std::nullopt);
  }
  weight = where(logical_and(ge(pixel, low), lt(pixel, high)), weight, 0.0);
  weight = div(weight, sum(weight, Ints{1}, true));
  return movedim(matmul(movedim(x, a.axis, -1), weight, false, true), -1, a.axis);
}

}  // namespace

Value resize(const Value& x, const ResizeOptions& o) {
  const int dims = x.rank() - 2;
  const bool plain = o.mode == "nearest" || o.mode == "nearest-exact";
  const DType dtype = is_floating(x.dtype()) ? stat_dtype(x.dtype()) : DType::kFloat32;
  SLUICE_CHECK_KIND(kUnsupported, plain || is_floating(x.dtype()),
                    "interpolate: mode '{}' is not implemented for {}; cast the input to a floating dtype", o.mode,
                    dtype_name(x.dtype()));
  Value y = plain ? x : cast(x, dtype);
  for (int d = 0; d < dims; ++d) {
    const int64_t in = x.shape()[2 + d], out = o.size[d];
    SLUICE_CHECK_KIND(kRuntime, in > 0 && out > 0,
                      "interpolate: Input and output sizes should be greater than 0, but got input {} and output {}",
                      x.shape().str(), attr_str(o.size));
    double scale = static_cast<double>(in) / static_cast<double>(out);
    if (o.align_corners)
      scale = out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0;
    else if (!o.scale_factors.empty() && o.scale_factors[d] > 0)
      scale = 1 / o.scale_factors[d];
    if (dtype == DType::kFloat32) scale = static_cast<float>(scale);
    const Axis a{2 + d, in, out, scale, dtype};
    if (in == out && (plain || scale == 1)) continue;
    if (plain)
      y = nearest(y, a, o.mode == "nearest-exact");
    else if (o.antialias)
      y = antialiased_along(y, a, o.mode == "cubic");
    else
      y = o.mode == "linear" ? linear_along(y, a, o.align_corners) : cubic_along(y, a, o.align_corners);
  }
  return cast(y, x.dtype());
}

Value affine_grid(const Value& theta, const Ints& size, bool align_corners) {
  const int64_t dims = static_cast<int64_t>(size.size()) - 2;
  const DType dtype = theta.dtype();
  Shape spatial(Ints(size.begin() + 2, size.end()));
  std::vector<Value> base;  // x, y, z, and 1
  for (int64_t d = dims - 1; d >= 0; --d) {
    const int64_t n = spatial[static_cast<int>(d)];
    const double count = static_cast<double>(n), half = align_corners ? (n > 1 ? 1 : 0) : (count - 1) / count;
    Value line = n > 1 ? linspace(-half, half, n, dtype) : zeros({1}, dtype);
    Ints shape(dims, 1);
    shape[d] = n;
    base.push_back(expand(reshape(line, shape), spatial));
  }
  base.push_back(ones(spatial, dtype));
  const int64_t points = numel(spatial);
  const Value rows = reshape(stack(base, -1), {points, dims + 1});
  Ints out = {size[0]};
  out.insert(out.end(), size.begin() + 2, size.end());
  out.push_back(dims);
  return reshape(matmul(rows, theta, false, true), out);
}

namespace {

// A coordinate of a grid in pixels; `raw` without what padding makes of it.
struct Coordinates {
  int64_t size;
  const GridSampleOptions* options;

  Value raw(const Value& x) const {
    const double n = static_cast<double>(size);
    if (options->align_corners) return mul(div(add(x, 1), 2), n - 1);
    return div(sub(mul(add(x, 1), n), 1), 2);
  }
  // Within the image, with the gradient 0 at its ends and beyond; NaN is its first end.
  Value clipped(const Value& x) const {
    const double last = static_cast<double>(size - 1);
    return where(gt(x, 0), where(lt(x, last), x, last), 0.0);
  }
  Value reflected(const Value& x) const {
    const double low = options->align_corners ? 0 : -0.5, span = static_cast<double>(size - options->align_corners);
    if (span == 0) return mul(x, 0.0);
    const Value off = sub(x, low), away = where(lt(off, 0), neg(off), off);
    const Value turns = floor(div(away, span)), rest = fmod(away, span);
    return add(where(eq(fmod(turns, 2), 0), rest, sub(span, rest)), low);
  }
  Value padded(const Value& x) const {
    if (options->padding_mode == "border") return clipped(x);
    if (options->padding_mode == "reflection") return clipped(reflected(x));
    return x;
  }
};

// The pixels of an image at whole positions, one Value (N, points) per dim; zeros beyond it.
class Pixels {
 public:
  Pixels(const Value& x, int64_t points) : shape_(x.shape()), points_(points) {
    int64_t area = 1;
    for (int d = 2; d < x.rank(); ++d) area *= x.shape()[d];
    flat_ = reshape(x, {x.shape()[0], x.shape()[1], area});
  }
  Value at(const std::vector<Value>& position) const {
    Value index, inside;
    for (size_t d = 0; d < position.size(); ++d) {
      const int64_t size = shape_[2 + static_cast<int>(d)];
      const Value here = as_index(position[d], size);
      index = index.defined() ? add(mul(index, size), here) : here;
      const Value within = logical_and(ge(position[d], 0), le(position[d], size - 1));
      inside = inside.defined() ? logical_and(inside, within) : within;
    }
    const int64_t n = shape_[0], channels = shape_[1];
    const Value picked = gather(flat_, expand(reshape(index, {n, 1, points_}), {n, channels, points_}), 2);
    return where(reshape(inside, {n, 1, points_}), picked, 0.0);
  }
  Value weigh(const Value& pixels, const Value& weight) const {
    return mul(pixels, reshape(weight, {shape_[0], 1, points_}));
  }

 private:
  Shape shape_;
  int64_t points_;
  Value flat_;
};

Value grid_sample_of_ops(const Value& x, const Value& grid, const GridSampleOptions& o) {
  const int dims = x.rank() - 2;
  const int64_t n = x.shape()[0];
  const DType dtype = stat_dtype(x.dtype());
  const Value points = cast(grid, dtype);
  Ints out = {n, x.shape()[1]};
  int64_t count = 1;
  for (int d = 1; d <= dims; ++d) {
    out.push_back(grid.shape()[d]);
    count *= grid.shape()[d];
  }
  const Pixels pixels(cast(x, dtype), count);
  std::vector<Value> at;  // per spatial dim, in pixels
  std::vector<Coordinates> coordinates;
  for (int d = 0; d < dims; ++d) {
    coordinates.push_back({x.shape()[2 + d], &o});
    const Value raw = coordinates[d].raw(reshape(select(points, -1, dims - 1 - d), {n, count}));
    at.push_back(o.mode == "bicubic" ? raw : coordinates[d].padded(raw));
  }
  Value y;
  const auto gain = [&](const Value& term) { y = y.defined() ? add(y, term) : term; };
  if (o.mode == "nearest") {
    for (Value& a : at) a = round(a);
    y = pixels.at(at);
    // Points have gradients of zeros, since rounding has; indices have none that could lead back to them.
    const Value never = full({}, 0, DType::kBool);
    for (const Value& a : at) y = where(never, reshape(a, {n, 1, count}), y);
  } else if (o.mode == "bilinear") {
    for (int corner = 0; corner < 1 << dims; ++corner) {
      std::vector<Value> position;
      Value weight;
      for (int d = 0; d < dims; ++d) {
        const bool upper = (corner >> (dims - 1 - d)) & 1;
        const Value low = floor(at[d]), after = sub(at[d], low), share = upper ? after : sub(1.0, after);
        position.push_back(upper ? add(low, 1) : low);
        weight = weight.defined() ? mul(weight, share) : share;
      }
      gain(pixels.weigh(pixels.at(position), weight));
    }
  } else {
    const Value row = floor(at[0]), column = floor(at[1]);
    const auto down = cubic_weights(sub(at[0], row)), across = cubic_weights(sub(at[1], column));
    for (int i = 0; i < 4; ++i) {
      Value line;
      for (int j = 0; j < 4; ++j) {
        const Value pixel =
            pixels.at({coordinates[0].padded(add(row, i - 1)), coordinates[1].padded(add(column, j - 1))});
        const Value term = pixels.weigh(pixel, across[j]);
        line = line.defined() ? add(line, term) : term;
      }
      gain(pixels.weigh(line, down[i]));
    }
  }
  return cast(reshape(y, out), x.dtype());
}

const OpDef grid_sample_def{
    .name = "grid_sample",
    .doc =
        "Images x (N, C, H, W) at the points grid (N, h, w, 2), columns first, -1 and 1 being the ends: (N, C, h, w). "
        "mode: bilinear or nearest. torch.nn.functional.grid_sample.",
    .inputs = {"x", "grid"},
    .params = {{"mode", std::string("bilinear")}, {"padding_mode", std::string("zeros")}, {"align_corners", false}},
    .infer = [](Types in, Present, const Attrs&) -> std::vector<TensorType> {
      check_floating(in[0], "x");
      check_same_dtype(in, "inputs");
      const Shape &x = in[0].shape, &grid = in[1].shape;
      SLUICE_CHECK(x.rank() == 4 && grid.rank() == 4 && grid[0] == x[0] && grid[3] == 2 && x[2] > 0 && x[3] > 0 &&
                       x[2] * x[3] <= INT32_MAX,
                   "x, grid: {} and {}; must be (N, C, H, W) with pixels, and (N, h, w, 2)", in[0].str(), in[1].str());
      return {{in[0].dtype, Shape{x[0], x[1], grid[1], grid[2]}}};
    },
    .decompose = [](std::span<const Value> in, const Attrs& attrs) -> std::vector<Value> {
      return {grid_sample_of_ops(in[0], in[1],
                                 {attr<std::string>(attrs, 0), attr<std::string>(attrs, 1), attr<bool>(attrs, 2)})};
    },
    .sbp = [](Types, const Attrs&) -> std::vector<SbpRow> {
      const auto B = Sbp::broadcast(), P = Sbp::partial_sum();
      return {row_of({B, B}, B), row_of({Sbp::split(0), Sbp::split(0)}, Sbp::split(0)),
              row_of({Sbp::split(1), B}, Sbp::split(1)), row_of({P, B}, P)};
    },
    .samples = {{{{{2, 3, 4, 5}}, {{2, 3, 2, 2}}}, {}},
                {{{{1, 2, 3, 4}}, {{1, 2, 5, 2}, DType::kFloat32, -1.6, 1.6}},
                 {std::string("bilinear"), std::string("border"), true}},
                {{{{2, 1, 3, 3}}, {{2, 4, 2, 2}, DType::kFloat32, -2.5, 2.5}},
                 {std::string("bilinear"), std::string("reflection"), false}},
                {{{{2, 2, 4, 3}}, {{2, 3, 3, 2}, DType::kFloat32, -1.2, 1.2}},
                 {std::string("nearest"), std::string("zeros"), false}},
                {{{{0, 2, 4, 3}}, {{0, 3, 3, 2}}}, {}}}};

}  // namespace

std::span<const OpDef* const> resampling_ops() {
  static const OpDef* const ops[] = {&grid_sample_def};
  return ops;
}

Value grid_sample(const Value& x, const Value& grid, const GridSampleOptions& o) {
  // The op's gradient would make again what single ops keep for theirs; both have the same bits.
  const bool kept = grad_enabled() && (x.requires_grad() || grid.requires_grad());
  if (kept || x.rank() != 4 || o.mode == "bicubic" || x.dtype() != grid.dtype()) return grid_sample_of_ops(x, grid, o);
  return call1(grid_sample_def, {x, grid}, {o.mode, o.padding_mode, o.align_corners});
}

}  // namespace sluice::ops
