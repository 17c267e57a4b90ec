// Ops on images and boxes.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "graph/ops/activation.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/indexing.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/resampling.h"
#include "graph/ops/shaping.h"
#include "onnx/ops/resize.h"
#include "onnx/table.h"
#include "tensor/forms/host_values.h"

namespace sluice::onnx {
namespace {

Value grid_sampled(const Call& c) {
  ops::GridSampleOptions options;
  options.mode = c.s("mode", c.version() < 20 ? "bilinear" : "linear");
  if (options.mode == "linear") options.mode = "bilinear";
  if (options.mode == "cubic") options.mode = "bicubic";
  options.padding_mode = c.s("padding_mode", "zeros");
  options.align_corners = c.i("align_corners") != 0;
  return ops::grid_sample(c.in(0), c.in(1), options);
}

// Points between pixels of one box: rows (or columns) below and above each, and how far it lies between; `inside` tells
// which lie on the image.
struct Points {
  Value low, high, part, inside;
};
Points points_of(const Value& at, int64_t size) {
  const auto most = static_cast<double>(size - 1);
  Points p;
  p.inside = ops::logical_and(ops::ge(at, -1.0), ops::le(at, static_cast<double>(size)));
  const Value from = ops::clamp(at, ops::Operand(0.0), ops::Operand(most));
  const Value floor = ops::floor(from);
  p.part = ops::sub(from, floor);
  p.low = ops::cast(floor, DType::kInt64);
  p.high = ops::clamp(ops::add(p.low, 1), std::nullopt, ops::Operand(size - 1));
  return p;
}

// Averages, or the largest, of points within the cells of boxes.
Value boxes_aligned(const Call& c) {
  const Value& x = c.in(0);
  SLUICE_CHECK(x.rank() == 4 && c.in(1).rank() == 2 && c.in(1).shape()[1] == 4,
               "an image of {}, boxes of {}; must be (N, C, H, W), (n, 4)", x.shape().str(), c.in(1).shape().str());
  const int64_t rows = c.i("output_height", 1), columns = c.i("output_width", 1), ratio = c.i("sampling_ratio");
  SLUICE_CHECK(rows > 0 && columns > 0 && ratio >= 0, "{} by {} cells of {} points; must be positive", rows, columns,
               ratio);
  const bool half =
      c.s("coordinate_transformation_mode", c.version() < 16 ? "output_half_pixel" : "half_pixel") == "half_pixel";
  const bool largest = c.s("mode", "avg") == "max";
  const std::vector<double> boxes = c.doubles(1);
  const Ints images = c.ints(2);
  std::vector<Value> made;
  for (size_t n = 0; n < images.size(); ++n) {
    SLUICE_CHECK(images[n] >= 0 && images[n] < x.shape()[0], "box {} is of image {}; there are {}", n, images[n],
                 x.shape()[0]);
    const double scale = c.f("spatial_scale", 1), shift = half ? 0.5 : 0;
    const auto bound = [&](size_t i) { return boxes[4 * n + i] * scale - shift; };
    const auto axis = [&](double start, double end, int64_t cells, int64_t size) {
      const double width = half ? end - start : std::max(end - start, 1.0), cell = width / static_cast<double>(cells);
      const int64_t each = ratio > 0 ? ratio : static_cast<int64_t>(std::clamp(std::ceil(cell), 0.0, 1e6));
      const Value at = ops::add(ops::mul(ops::add(ops::iota(0, 1, cells * each, DType::kFloat64), 0.5),
                                         cell / static_cast<double>(std::max<int64_t>(each, 1))),
                                start);
      return std::pair(points_of(at, size), each);
    };
    const auto [py, ny] = axis(bound(1), bound(3), rows, x.shape()[2]);
    const auto [px, nx] = axis(bound(0), bound(2), columns, x.shape()[3]);
    if (ny == 0 || nx == 0) {
      made.push_back(ops::zeros(Shape({x.shape()[1], rows, columns}), x.dtype()));
      continue;
    }
    const Value image = ops::select(x, 0, images[n]);
    const auto wide = [&](const Value& v) { return ops::cast(v, x.dtype()); };
    const auto corner = [&](const Value& at_y, const Value& at_x, const Value& wy, const Value& wx) {
      const Value there = ops::index_select(ops::index_select(image, at_y, 1), at_x, 2);
      return ops::mul(there, ops::mul(ops::unsqueeze(wide(ops::mul(wy, py.inside)), 1), wide(ops::mul(wx, px.inside))));
    };
    const Value one_y = ops::sub(1, py.part), one_x = ops::sub(1, px.part);
    const Value a = corner(py.low, px.low, one_y, one_x), b = corner(py.low, px.high, one_y, px.part);
    const Value d = corner(py.high, px.low, py.part, one_x), e = corner(py.high, px.high, py.part, px.part);
    const Value points =
        largest ? ops::maximum(ops::maximum(a, b), ops::maximum(d, e)) : ops::add(ops::add(a, b), ops::add(d, e));
    const Value cells = ops::reshape(points, {x.shape()[1], rows, ny, columns, nx});
    made.push_back(largest ? ops::amax(cells, Ints{2, 4}) : ops::mean(cells, Ints{2, 4}));
  }
  if (made.empty()) return ops::zeros(Shape({0, x.shape()[1], rows, columns}), x.dtype());
  return ops::stack(made, 0);
}

struct Box {
  double low[2], high[2];
};
double overlap(const Box& a, const Box& b) {
  double both = 1, of_a = 1, of_b = 1;
  for (int d = 0; d < 2; ++d) {
    const double width = std::min(a.high[d], b.high[d]) - std::max(a.low[d], b.low[d]);
    if (width <= 0) return 0;
    both *= width;
    of_a *= a.high[d] - a.low[d];
    of_b *= b.high[d] - b.low[d];
  }
  return of_a > 0 && of_b > 0 ? both / (of_a + of_b - both) : 0;
}

// Boxes by falling score, without those that overlap a better one of their class. Its length depends on the values.
Value best_boxes(const Call& c) {
  const std::vector<double> boxes = c.doubles(0), scores = c.doubles(1);
  const Shape& s = c.in(1).shape();
  SLUICE_CHECK(s.rank() == 3 && c.in(0).shape() == Shape({s[0], s[2], 4}),
               "boxes {} and scores {}; must be (N, n, 4) and (N, classes, n)", c.in(0).shape().str(), s.str());
  const int64_t most = c.has(2) ? std::max<int64_t>(c.integer(2), 0) : 0;
  const double limit = c.has(3) ? c.number(3) : 0;
  const bool centres = c.i("center_point_box") != 0;
  const auto count = static_cast<size_t>(s[2]);
  std::vector<int64_t> chosen;
  for (int64_t n = 0; n < s[0]; ++n) {
    std::vector<Box> all(count);
    for (size_t i = 0; i < count; ++i) {
      const double* b = boxes.data() + (static_cast<size_t>(n) * count + i) * 4;
      for (size_t d = 0; d < 2; ++d) {
        const double p = centres ? b[d] - b[d + 2] / 2 : b[d], q = centres ? b[d] + b[d + 2] / 2 : b[d + 2];
        all[i].low[d] = std::min(p, q);
        all[i].high[d] = std::max(p, q);
      }
    }
    for (int64_t k = 0; k < s[1]; ++k) {
      const double* score = scores.data() + (n * s[1] + k) * s[2];
      std::vector<size_t> order;
      for (size_t i = 0; i < count; ++i)
        if (!c.has(4) || score[i] > c.number(4)) order.push_back(i);
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return score[a] > score[b]; });
      std::vector<size_t> kept;
      for (const size_t i : order) {
        if (static_cast<int64_t>(kept.size()) >= most) break;
        if (std::any_of(kept.begin(), kept.end(), [&](size_t j) { return overlap(all[i], all[j]) > limit; })) continue;
        kept.push_back(i);
        chosen.insert(chosen.end(), {n, k, static_cast<int64_t>(i)});
      }
    }
  }
  return Tensor::from_host({DType::kInt64, {static_cast<int64_t>(chosen.size() / 3), 3}}, chosen.data());
}

// Sums columns of windows where they lie in the image.
Value columns_joined(const Call& c) {
  const Value& x = c.in(0);
  const Ints image = c.ints(1), block = c.ints(2);
  const size_t dims = image.size();
  const Ints stride = c.is("strides", Ints(dims, 1)), dilation = c.is("dilations", Ints(dims, 1)),
             pads = c.is("pads", Ints(2 * dims, 0));
  SLUICE_CHECK(
      x.rank() == 3 && dims > 0 && block.size() == dims && stride.size() == dims && dilation.size() == dims &&
          pads.size() == 2 * dims,
      "an input of {} for an image of {} dims; must be (N, C * window, windows), and attributes have a number for each",
      x.shape().str(), dims);
  // The number of the element that each tap of each window lies on, in the padded image.
  Value at = ops::zeros(Shape({1, 1}), DType::kInt64);
  Shape padded;
  for (size_t d = 0; d < dims; ++d) {
    const int64_t size = image[d] + pads[d] + pads[d + dims];
    SLUICE_CHECK(stride[d] > 0 && dilation[d] > 0 && block[d] > 0 && pads[d] >= 0 && pads[d + dims] >= 0,
                 "strides, dilations and windows must be positive, pads not negative");
    const int64_t places = (size - dilation[d] * (block[d] - 1) - 1) / stride[d] + 1;
    SLUICE_CHECK(places > 0, "a window of {} over {} elements; must not be larger", block[d], size);
    const Value here = ops::add(ops::reshape(ops::mul(ops::iota(0, 1, block[d]), dilation[d]), {1, block[d], 1, 1}),
                                ops::reshape(ops::mul(ops::iota(0, 1, places), stride[d]), {1, 1, 1, places}));
    const int64_t taps = at.shape()[0], windows = at.shape()[1];
    at = ops::reshape(ops::add(ops::mul(ops::reshape(at, {taps, 1, windows, 1}), size), here),
                      {taps * block[d], windows * places});
    padded.push_back(size);
  }
  const int64_t taps = at.shape()[0], windows = at.shape()[1];
  SLUICE_CHECK(x.shape()[1] % taps == 0 && x.shape()[2] == windows,
               "an input of {}; must have a multiple of {} rows, and {} columns", x.shape().str(), taps, windows);
  const int64_t planes = x.shape()[0] * (x.shape()[1] / taps);
  const Value flat = ops::reshape(x, {planes, taps * windows});
  const Value index = ops::expand(ops::reshape(at, {1, taps * windows}), flat.shape());
  const Value sums = ops::scatter_add(ops::zeros(Shape({planes, numel(padded)}), x.dtype()), index, flat, 1);
  Ints shape{x.shape()[0], x.shape()[1] / taps};
  shape.insert(shape.end(), padded.begin(), padded.end());
  Value y = ops::reshape(sums, shape);
  for (size_t d = 0; d < dims; ++d) y = ops::narrow(y, static_cast<int64_t>(d) + 2, pads[d], image[d]);
  return y;
}

}  // namespace

Entries image_entries() {
  return {
      {"AffineGrid", [](const Call& c) { return ops::affine_grid(c.in(0), c.ints(1), c.i("align_corners") != 0); }, 2},
      {"Col2Im", columns_joined, 6},
      {"GridSample", grid_sampled},
      {"NonMaxSuppression", best_boxes, 28},
      {"Resize", resized, 14},
      {"RoiAlign", boxes_aligned, 6},
      {"Upsample", upsampled, 2},
  };
}

}  // namespace sluice::onnx
