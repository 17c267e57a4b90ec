#include "onnx/ops/resize.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "graph/ops/comparison.h"
#include "graph/ops/indexing.h"
#include "graph/ops/movement.h"
#include "graph/ops/taps.h"
#include "tensor/tensor.h"

namespace sluice::onnx {
namespace {

struct Rule {
  std::string mode, coordinates, nearest;
  double cubic = -0.75, beyond = 0;
  bool exclude_outside = false, antialias = false;
};

struct Axis {
  int64_t size, wanted;
  double scale;
  double from, to;  // the part of the axis that is shown, for tf_crop_and_resize
};

// Where element x of the result lies in the axis.
double source(const Rule& rule, const Axis& a, int64_t i) {
  const auto x = static_cast<double>(i), size = static_cast<double>(a.size), width = a.scale * size;
  const std::string& how = rule.coordinates;
  if (how == "align_corners") return width == 1 ? 0 : x * (size - 1) / (width - 1);
  if (how == "asymmetric") return x / a.scale;
  if (how == "tf_crop_and_resize") {
    const double span = (a.to - a.from) * (size - 1);
    return a.from * (size - 1) + (width == 1 ? span / 2 : x * span / (width - 1));
  }
  if (how == "pytorch_half_pixel" && width == 1) return -0.5;
  const double half = (x + 0.5) / a.scale - 0.5;
  if (how == "half_pixel" || how == "pytorch_half_pixel") return half;
  SLUICE_CHECK(how == "half_pixel_symmetric", "coordinates by '{}'; must be a rule of ONNX", how);
  return size / 2 * (1 - static_cast<double>(a.wanted) / width) + half;
}

double cubic_weight(double distance, double a) {
  const double x = std::abs(distance), x2 = x * x, x3 = x2 * x;
  if (x <= 1) return (a + 2) * x3 - (a + 3) * x2 + 1;
  return x < 2 ? a * x3 - 5 * a * x2 + 8 * a * x - 4 * a : 0;
}

// Weights of the elements from `first` on, counted from the one before the place, which lies `ratio` behind it.
std::vector<double> weights_at(const Rule& rule, double ratio, double scale, int64_t& first) {
  first = 0;
  if (rule.mode == "nearest") {
    bool after = ratio == 1 || rule.nearest == "ceil";
    if (ratio != 1 && rule.nearest == "round_prefer_floor") after = ratio > 0.5;
    if (ratio != 1 && rule.nearest == "round_prefer_ceil") after = ratio >= 0.5;
    return {after ? 0.0 : 1.0, after ? 1.0 : 0.0};
  }
  const bool cubic = rule.mode == "cubic";
  const double shrink = rule.antialias ? std::min(scale, 1.0) : 1.0;
  const double reach = cubic ? 2 : 1;
  first = static_cast<int64_t>(std::floor(-reach / shrink)) + 1;
  std::vector<double> weights;
  double sum = 0;
  for (int64_t i = first; i < 2 - first; ++i) {
    const double distance = shrink * (static_cast<double>(i) - ratio);
    weights.push_back(cubic ? cubic_weight(distance, rule.cubic) : std::max(1 - std::abs(distance), 0.0));
    sum += weights.back();
  }
  if (rule.antialias)
    for (double& w : weights) w /= sum;
  return weights;
}

// The axis at its new size. Weights and places follow from sizes alone.
Value axis_resized(const Value& x, int axis, const Axis& a, const Rule& rule) {
  std::vector<int64_t> index;
  std::vector<double> weight, shown;
  int64_t taps = 0;
  for (int64_t i = 0; i < a.wanted; ++i) {
    const double at = source(rule, a, i);
    const bool whole = at == std::floor(at);
    const int64_t before = static_cast<int64_t>(std::floor(at)) - (whole ? 1 : 0);
    int64_t first = 0;
    std::vector<double> weights = weights_at(rule, whole ? 1 : at - std::floor(at), a.scale, first);
    double sum = 0;
    for (size_t k = 0; k < weights.size(); ++k) {
      const int64_t from = before + first + static_cast<int64_t>(k);
      if (rule.exclude_outside && (from < 0 || from >= a.size)) weights[k] = 0;
      sum += weights[k];
      index.push_back(std::clamp<int64_t>(from, 0, a.size - 1));
    }
    for (double& w : weights) weight.push_back(rule.exclude_outside ? w / sum : w);
    shown.push_back(at >= 0 && at <= static_cast<double>(a.size - 1) ? 1 : 0);
    taps = static_cast<int64_t>(weights.size());
  }
  Value y;
  if (rule.mode == "nearest") {
    std::vector<int64_t> chosen;
    for (size_t i = 0; i < static_cast<size_t>(a.wanted); ++i)
      chosen.push_back(index[2 * i + (weight[2 * i + 1] == 1 ? 1 : 0)]);
    y = ops::index_select(x, Tensor::from_host({DType::kInt64, {a.wanted}}, chosen.data()), axis);
  } else {
    const Value at = Tensor::from_host({DType::kInt64, {a.wanted, taps}}, index.data());
    const Value w = ops::cast(Tensor::from_host({DType::kFloat64, {a.wanted, taps}}, weight.data()), x.dtype());
    y = ops::weighted_taps(x, at, w, axis);
  }
  if (rule.coordinates != "tf_crop_and_resize") return y;
  Ints shape(static_cast<size_t>(x.rank()), 1);
  shape[static_cast<size_t>(axis)] = a.wanted;
  const Value inside = ops::gt(ops::reshape(Tensor::from_host({DType::kFloat64, {a.wanted}}, shown.data()), shape), 0);
  return ops::cast(ops::where(inside, y, rule.beyond), y.dtype());
}

Value resized_by(const Call& c, const std::vector<Axis>& axes, const Ints& which, const Rule& rule) {
  SLUICE_CHECK(rule.mode == "nearest" || rule.mode == "linear" || rule.mode == "cubic",
               "mode '{}'; must be nearest, linear or cubic", rule.mode);
  Value x = c.in(0);
  const DType dtype = x.dtype();
  const bool compute = rule.mode != "nearest" && !is_differentiable(dtype);
  if (compute) x = ops::cast(x, DType::kFloat32);
  for (size_t i = 0; i < axes.size(); ++i) {
    const Axis& a = axes[i];
    SLUICE_CHECK(a.size > 0 && a.wanted >= 0 && a.scale > 0 && std::isfinite(a.scale) && a.wanted < (int64_t{1} << 40),
                 "axis {} of {} elements by {} to {}; must have some, and a positive scale", which[i], a.size, a.scale,
                 a.wanted);
    if (a.scale == 1 && a.wanted == a.size && rule.coordinates != "tf_crop_and_resize") continue;
    x = axis_resized(x, static_cast<int>(which[i]), a, rule);
  }
  return compute ? ops::cast(x, dtype) : x;
}

}  // namespace

Value resized(const Call& c) {
  const Shape& shape = c.in(0).shape();
  const bool old = c.version() < 11;  // whose one rule is asymmetric
  Rule rule{c.s("mode", "nearest"),
            old ? "asymmetric" : c.s("coordinate_transformation_mode", "half_pixel"),
            old ? "floor" : c.s("nearest_mode", "round_prefer_floor"),
            c.f("cubic_coeff_a", -0.75),
            c.f("extrapolation_value"),
            c.i("exclude_outside") != 0,
            c.i("antialias") != 0};
  if (rule.mode == "bilinear") rule.mode = "linear";
  Ints which(static_cast<size_t>(shape.rank()));
  std::iota(which.begin(), which.end(), 0);
  which = c.is("axes", which);
  for (int64_t& axis : which) axis = normalize_axis(axis, shape.rank(), "axes");
  const std::vector<double> scales = c.has(old ? 1 : 2) ? c.doubles(old ? 1 : 2) : std::vector<double>();
  Ints sizes = c.has(3) ? c.ints(3) : Ints();
  const std::vector<double> roi = !old && c.has(1) ? c.doubles(1) : std::vector<double>();
  SLUICE_CHECK(scales.empty() != sizes.empty() && std::max(scales.size(), sizes.size()) == which.size(),
               "{} scales and {} sizes of {} axes; must have either, one of each", scales.size(), sizes.size(),
               which.size());
  SLUICE_CHECK(rule.coordinates != "tf_crop_and_resize" || roi.size() == 2 * which.size(),
               "{} bounds of {} axes; must be two of each", roi.size(), which.size());
  const std::string policy = c.s("keep_aspect_ratio_policy", "stretch");
  double common = 0;
  if (!sizes.empty() && policy != "stretch")
    for (size_t i = 0; i < which.size(); ++i) {
      const double scale = static_cast<double>(sizes[i]) / static_cast<double>(shape[static_cast<int>(which[i])]);
      common = i == 0 ? scale : policy == "not_larger" ? std::min(common, scale) : std::max(common, scale);
    }
  std::vector<Axis> axes;
  for (size_t i = 0; i < which.size(); ++i) {
    const int64_t size = shape[static_cast<int>(which[i])];
    Axis a{size, 0, 0, roi.empty() ? 0 : roi[i], roi.empty() ? 1 : roi[i + which.size()]};
    if (!scales.empty()) {
      a.scale = scales[i];
      const double wanted = std::floor(static_cast<double>(size) * a.scale);
      a.wanted = wanted >= 0 && wanted < 1e12 ? static_cast<int64_t>(wanted) : -1;
    } else {
      a.wanted = common > 0 ? static_cast<int64_t>(std::floor(common * static_cast<double>(size) + 0.5)) : sizes[i];
      a.scale = common > 0 ? common : static_cast<double>(a.wanted) / static_cast<double>(size);
    }
    axes.push_back(a);
  }
  return resized_by(c, axes, which, rule);
}

Value upsampled(const Call& c) {
  const Shape& shape = c.in(0).shape();
  const std::vector<double> scales = c.has_attr("scales") ? c.fs("scales") : c.doubles(1);
  SLUICE_CHECK(static_cast<int>(scales.size()) == shape.rank(), "{} scales of {}; must be one of each axis",
               scales.size(), shape.str());
  std::vector<Axis> axes;
  Ints which;
  for (int d = 0; d < shape.rank(); ++d) {
    const double wanted = std::floor(static_cast<double>(shape[d]) * scales[static_cast<size_t>(d)]);
    axes.push_back({shape[d], wanted >= 0 && wanted < 1e12 ? static_cast<int64_t>(wanted) : -1,
                    scales[static_cast<size_t>(d)], 0, 1});
    which.push_back(d);
  }
  const std::string mode = c.s("mode", "nearest");
  return resized_by(c, axes, which, {mode == "bilinear" ? "linear" : mode, "asymmetric", "floor"});
}

}  // namespace sluice::onnx
