// Normalisations and softmax.
#include "graph/ops/normalization.h"

#include <numeric>

#include "base/error.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"
#include "graph/ops/softmax.h"
#include "onnx/table.h"

namespace sluice::onnx {
namespace {

Value per_channel(const Value& v, int rank) {
  Ints shape(static_cast<size_t>(rank), 1);
  shape[1] = v.shape()[0];
  return ops::reshape(v, shape);
}

Items batch_norm(const Call& c) {
  const Value& x = c.in(0);
  const double eps = c.f("epsilon", 1e-5), momentum = c.f("momentum", 0.9);
  if (c.version() < 14 || c.i("training_mode") == 0)
    return ops::batch_norm(
               x, {.weight = c.in(1), .bias = c.in(2), .running_mean = c.in(3), .running_var = c.in(4), .eps = eps})
        .y;
  Ints axes{0};
  for (int d = 2; d < x.rank(); ++d) axes.push_back(d);
  const Value mean = ops::mean(x, axes), variance = ops::var(x, axes, 0);
  const Value scale = ops::div(c.in(1), ops::sqrt(ops::add(variance, eps)));
  const Value centred = ops::sub(x, per_channel(mean, x.rank()));
  const Value y = ops::add(ops::mul(centred, per_channel(scale, x.rank())), per_channel(c.in(2), x.rank()));
  const auto moved = [&](const Value& old, const Value& now) {
    return ops::add(ops::mul(old, momentum), ops::mul(ops::cast(now, old.dtype()), 1 - momentum));
  };
  return {y, moved(c.in(3), mean), moved(c.in(4), variance)};
}

// The dtype in which a norm computes.
DType stash(const Call& c, DType otherwise) {
  return c.version() >= 17 ? c.dtype("stash_type", DType::kFloat32) : otherwise;
}

Ints axes_from(const Value& x, int64_t axis) {
  Ints axes;
  for (int d = normalize_axis(axis, x.rank(), "axis"); d < x.rank(); ++d) axes.push_back(d);
  return axes;
}

Items layer_norm(const Call& c) {
  const Value& x = c.in(0);
  const double eps = c.f("epsilon", 1e-5);
  const Ints axes = axes_from(x, c.i("axis", -1));
  const Shape normalized(Ints(x.shape().begin() + axes.front(), x.shape().end()));
  if (!c.wants(1) && !c.wants(2) && c.in(1).shape() == normalized && (!c.has(2) || c.in(2).shape() == normalized))
    return ops::layer_norm(x, normalized.vec(), c.in(1), c.opt(2), eps);
  const Value wide = ops::cast(x, stash(c, x.dtype()));
  const Value mean = ops::mean(wide, axes, true);
  const Value centred = ops::sub(wide, mean);
  const Value inverse = ops::reciprocal(ops::sqrt(ops::add(ops::mean(ops::mul(centred, centred), axes, true), eps)));
  Value y = ops::mul(ops::cast(ops::mul(centred, inverse), x.dtype()), c.in(1));
  if (c.has(2)) y = ops::add(y, c.in(2));
  return {y, mean, inverse};
}

Value rms_norm(const Call& c) {
  const Value& x = c.in(0);
  const Ints axes = axes_from(x, c.i("axis", -1));
  const Value wide = ops::cast(x, stash(c, x.dtype()));
  const Value square = ops::mean(ops::mul(wide, wide), axes, true);
  const Value y = ops::div(wide, ops::sqrt(ops::add(square, c.f("epsilon", 1e-5))));
  return ops::mul(ops::cast(y, x.dtype()), c.in(1));
}

Value group_norm(const Call& c) {
  const Value& x = c.in(0);
  const int64_t groups = c.i("num_groups"), channels = x.rank() >= 2 ? x.shape()[1] : 0;
  SLUICE_CHECK(groups > 0 && channels % groups == 0, "{} groups of {} channels; must divide them", groups, channels);
  Value weight = c.in(1), bias = c.in(2);
  if (c.version() < 21) {  // one number for each group
    const auto spread = [&](const Value& v) {
      return ops::reshape(ops::expand(ops::reshape(v, {groups, 1}), Shape({groups, channels / groups})), {channels});
    };
    weight = spread(weight);
    bias = spread(bias);
  }
  return ops::group_norm(x, groups, weight, bias, c.f("epsilon", 1e-5));
}

// (x - mean) / sqrt(variance + eps), of each sample and channel.
Value instance_norm(const Call& c) {
  const Value& x = c.in(0);
  SLUICE_CHECK(x.rank() >= 3, "an input of shape {}; must be (N, C, spatial...)", x.shape().str());
  return ops::group_norm(x, x.shape()[1], c.in(1), c.in(2), c.f("epsilon", 1e-5));
}

Value unit_length(const Call& c) {
  const Value& x = c.in(0);
  const Value length = ops::norm(x, static_cast<double>(c.i("p", 2)), Ints{c.i("axis", -1)}, true);
  const Value none = ops::eq(length, 0);
  return ops::where(none, ops::zeros_like(x), ops::div(x, ops::where(none, ops::ones_like(length), length)));
}

Value standardized(const Call& c) {
  const Value& x = c.in(0);
  const Ints axes = c.is("axes", {0, 2, 3});
  const Value mean = ops::mean(x, axes, true);
  const Value square = ops::sub(ops::mean(ops::mul(x, x), axes, true), ops::mul(mean, mean));
  return ops::div(ops::sub(x, mean), ops::add(ops::sqrt(square), 1e-9));
}

Value local_response(const Call& c) {
  const Value& x = c.in(0);
  const int64_t size = c.i("size");
  SLUICE_CHECK(size > 0 && x.rank() >= 2, "size {} of {}; must be positive, over channels", size, x.shape().str());
  const int64_t channels = x.shape()[1];
  Ints low(static_cast<size_t>(x.rank()), 0), high = low;
  low[1] = (size - 1) / 2;
  high[1] = size - 1 - low[1];
  const Value squares = ops::pad(ops::mul(x, x), low, high);
  Value sum;
  for (int64_t k = 0; k < size; ++k) {
    const Value part = ops::narrow(squares, 1, k, channels);
    sum = sum.defined() ? ops::add(sum, part) : part;
  }
  const Value scale = ops::add(ops::mul(sum, c.f("alpha", 1e-4) / static_cast<double>(size)), c.f("bias", 1));
  return ops::div(x, ops::pow(scale, c.f("beta", 0.75)));
}

// Before opset 13 all axes from one on are one.
auto along(Value (*f)(const Value&, int64_t)) {
  return [f](const Call& c) {
    const Value& x = c.in(0);
    if (c.version() >= 13) return f(x, c.i("axis", -1));
    const int axis = normalize_axis(c.i("axis", 1), x.rank(), "axis");
    return ops::reshape(f(ops::flatten(ops::unsqueeze(x, 0), 1 + axis), -1), x.shape().vec());
  };
}

}  // namespace

Entries normalization_entries() {
  return {
      {"BatchNormalization", batch_norm, 24},
      {"GroupNormalization", group_norm},
      {"InstanceNormalization", instance_norm},
      {"LayerNormalization", layer_norm},
      {"LogSoftmax", along(ops::log_softmax)},
      {"LpNormalization", unit_length},
      {"LRN", local_response},
      {"MeanVarianceNormalization", standardized},
      {"RMSNormalization", rms_norm},
      {"Softmax", along(ops::softmax)},
  };
}

}  // namespace sluice::onnx
