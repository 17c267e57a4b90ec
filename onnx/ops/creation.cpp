// Tensors from nothing, or from a shape.
#include "graph/ops/creation.h"

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "graph/ops/comparison.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/movement.h"
#include "graph/ops/random.h"
#include "graph/ops/shaping.h"
#include "onnx/table.h"
#include "tensor/random.h"

namespace sluice::onnx {
namespace {

Value constant(const Call& c) {
  if (const auto* attribute = c.find("value")) return c.read(attribute->t());
  if (const auto* attribute = c.find("sparse_value"))
    return read_sparse(attribute->sparse_tensor(), Folder(""), c.where());
  if (c.has_attr("value_float")) return Tensor::scalar(c.f("value_float"), DType::kFloat32);
  if (c.has_attr("value_int")) {
    const int64_t value = c.i("value_int");
    return Tensor::from_host({DType::kInt64, {}}, &value);
  }
  if (const auto* attribute = c.find("value_floats")) {
    const std::vector<float> values(attribute->floats().begin(), attribute->floats().end());
    return Tensor::from_host({DType::kFloat32, {static_cast<int64_t>(values.size())}}, values.data());
  }
  if (c.has_attr("value_ints")) {
    const Ints values = c.is("value_ints");
    return Tensor::from_host({DType::kInt64, {static_cast<int64_t>(values.size())}}, values.data());
  }
  c.refuse("its value is of strings; Sluice has no tensors of them");
}

Value filled(const Call& c) {
  const Ints sizes = c.ints(0);
  for (const int64_t size : sizes) SLUICE_CHECK(size >= 0, "a dim of {}; must not be negative", size);
  const Shape shape(sizes);
  const auto* value = c.find("value");
  if (!value) return ops::zeros(shape);
  const Value one = c.read(value->t());
  SLUICE_CHECK(numel(one.shape()) == 1, "a value of shape {}; must be one element", one.shape().str());
  return ops::copy(ops::expand(ops::reshape(one, {}), shape));
}

// 1 where column - row is k.
Value diagonal(const Call& c) {
  const Value& x = c.in(0);
  SLUICE_CHECK(x.rank() == 2, "an input of shape {}; must be a matrix", x.shape().str());
  const Value row = ops::reshape(ops::iota(0, 1, x.shape()[0]), {x.shape()[0], 1}),
              column = ops::iota(0, 1, x.shape()[1]);
  return ops::cast(ops::eq(ops::sub(column, row), c.i("k")), c.dtype("dtype", x.dtype()));
}

Value range(const Call& c) {
  const DType dtype = c.in(0).dtype();
  if (is_integral(dtype)) {
    const int64_t start = c.integer(0), limit = c.integer(1), delta = c.integer(2);
    SLUICE_CHECK(delta != 0, "a step of 0; must be another number");
    const __int128 span = static_cast<__int128>(limit) - start;
    const __int128 n = delta > 0 ? (span + delta - 1) / delta : (span + delta + 1) / delta;
    const auto count = static_cast<int64_t>(std::max<__int128>(n, 0));
    return ops::cast(ops::add(ops::mul(ops::iota(0, 1, count), delta), start), dtype);
  }
  const double start = c.number(0), limit = c.number(1), delta = c.number(2);
  SLUICE_CHECK(delta != 0 && std::isfinite(start) && std::isfinite(limit),
               "from {} to {} in steps of {}; must be finite", start, limit, delta);
  const double n = std::max(std::ceil((limit - start) / delta), 0.0);
  SLUICE_CHECK(n < 1e15, "{} elements; must be fewer", n);
  return ops::cast(ops::iota(start, delta, static_cast<int64_t>(n), dtype == DType::kFloat64 ? dtype : DType::kFloat32),
                   dtype);
}

// Windows of signals: a sum of cosines.
auto window(double a, double b, double c2) {
  return [=](const Call& c) {
    const int64_t size = c.integer(0);
    SLUICE_CHECK(size >= 0, "a window of {}; must not be negative", size);
    const double period = static_cast<double>(c.i("periodic", 1) != 0 ? size : size - 1);
    const Value angle = ops::mul(ops::iota(0, 1, size, DType::kFloat64), 2 * std::numbers::pi / period);
    Value w = ops::sub(a, ops::mul(ops::cos(angle), b));
    if (c2 != 0) w = ops::add(w, ops::mul(ops::cos(ops::mul(angle, 2)), c2));
    return ops::cast(w, c.dtype("output_datatype", DType::kFloat32));
  };
}

Value random(const Call& c, const Shape& shape, DType dtype, bool normal) {
  if (c.has_attr("seed")) c.refuse("a seed of its own; leave it out and seed Sluice's generator");
  const Generator::Draw draw = c.generator().next();
  return normal ? ops::normal(draw.state, shape, c.f("mean"), c.f("scale", 1), dtype, draw.salt)
                : ops::uniform(draw.state, shape, c.f("low"), c.f("high", 1), dtype, draw.salt);
}
auto random_shape(bool normal) {
  return [=](const Call& c) { return random(c, Shape(c.is("shape")), c.dtype("dtype", DType::kFloat32), normal); };
}
auto random_like(bool normal) {
  return [=](const Call& c) { return random(c, c.in(0).shape(), c.dtype("dtype", c.in(0).dtype()), normal); };
}

Value bernoulli(const Call& c) {
  if (c.has_attr("seed")) c.refuse("a seed of its own; leave it out and seed Sluice's generator");
  const Generator::Draw draw = c.generator().next();
  const Value u = ops::uniform(draw.state, c.in(0).shape(), 0, 1, DType::kFloat32, draw.salt);
  return ops::cast(ops::lt(u, c.in(0)), c.dtype("dtype", c.in(0).dtype()));
}

}  // namespace

Entries creation_entries() {
  return {
      {"Bernoulli", bernoulli},
      {"BlackmanWindow", window(0.42, 0.5, 0.08), 1},
      {"Constant", constant},
      {"ConstantOfShape", filled, 1},
      {"EyeLike", diagonal},
      {"HammingWindow", window(25.0 / 46, 21.0 / 46, 0), 1},
      {"HannWindow", window(0.5, 0.5, 0), 1},
      {"RandomNormal", random_shape(true)},
      {"RandomNormalLike", random_like(true)},
      {"RandomUniform", random_shape(false)},
      {"RandomUniformLike", random_like(false)},
      {"Range", range, 7},
  };
}

}  // namespace sluice::onnx
