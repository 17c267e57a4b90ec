// Numbers of 8 bits that stand for floats.
#include "graph/ops/quantization.h"

#include "base/error.h"
#include "graph/ops/activation.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/matmul.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"
#include "onnx/ops/convolution.h"
#include "onnx/table.h"

namespace sluice::onnx {
namespace {

using ops::Operand;

// A scale or zero point as it goes with `x`: of all, of a slice of `axis` each, or of a block of elements along it.
Value spread(const Value& v, const Value& x, int64_t axis, int64_t block) {
  if (numel(v.shape()) == 1) return ops::reshape(v, {});
  const int at = normalize_axis(axis, x.rank(), "axis");
  if (block == 0) {
    SLUICE_CHECK(v.rank() == 1 && v.shape()[0] == x.shape()[at],
                 "{} scales of axis {} of {}; must be one for each element", v.shape().str(), at, x.shape().str());
    Ints shape(static_cast<size_t>(x.rank()), 1);
    shape[static_cast<size_t>(at)] = v.shape()[0];
    return ops::reshape(v, shape);
  }
  SLUICE_CHECK(block > 0 && v.rank() == x.rank() && v.shape()[at] * block >= x.shape()[at],
               "scales {} of blocks of {} of {}; must be enough", v.shape().str(), block, x.shape().str());
  Shape wide = v.shape();
  wide.insert(at + 1, block);
  Ints joined = v.shape().vec();
  joined[static_cast<size_t>(at)] *= block;
  return ops::narrow(ops::reshape(ops::expand(ops::unsqueeze(v, at + 1), wide), joined), at, 0, x.shape()[at]);
}

std::pair<double, double> range_of(DType dtype) {
  if (dtype == DType::kUInt8) return {0, 255};
  if (dtype == DType::kInt8) return {-128, 127};
  SLUICE_CHECK_KIND(kUnsupported, dtype == DType::kInt16,
                    "quantized numbers of {}; int8, uint8 and int16 are supported", dtype_name(dtype));
  return {-32768, 32767};
}

// round(x) + zero, within what the dtype holds.
Value saturated(const Value& x, const Value& zero, DType dtype) {
  const auto [low, high] = range_of(dtype);
  Value whole = ops::round(x);
  if (zero.defined()) whole = ops::add(whole, ops::cast(zero, whole.dtype()));
  return ops::cast(ops::clamp(whole, Operand(low), Operand(high)), dtype);
}

Value quantized(const Call& c) {
  const Value& x = c.in(0);
  const int64_t axis = c.i("axis", 1), block = c.i("block_size");
  const DType dtype = c.has(2) ? c.in(2).dtype() : c.dtype("output_dtype", DType::kUInt8);
  const DType precision = c.dtype("precision", ops::result_dtype(x, c.in(1)));
  const bool plain = block == 0 && x.dtype() == DType::kFloat32 && c.in(1).dtype() == DType::kFloat32 &&
                     !c.has_attr("precision") && (dtype == DType::kUInt8 || dtype == DType::kInt8) && x.rank() > 0;
  if (plain) {
    const int64_t at = numel(c.in(1).shape()) == 1 ? 0 : normalize_axis(axis, x.rank(), "axis");
    const auto flat = [](const Value& v) { return v.defined() ? ops::reshape(v, {-1}) : v; };
    const Value zero = c.has(2) ? ops::cast(flat(c.in(2)), DType::kInt32) : Value();
    return ops::quantize(x, flat(c.in(1)), zero, {.dtype = dtype, .axis = at});
  }
  const Value scaled = ops::div(ops::cast(x, precision), ops::cast(spread(c.in(1), x, axis, block), precision));
  return saturated(ops::cast(scaled, DType::kFloat32), c.has(2) ? spread(c.in(2), x, axis, block) : Value(), dtype);
}

Value dequantized(const Call& c) {
  const Value& x = c.in(0);
  const int64_t axis = c.i("axis", 1), block = c.i("block_size");
  const Value scale = spread(c.in(1), x, axis, block);
  Value wide = ops::cast(x, x.dtype() == DType::kInt32 ? DType::kFloat64 : DType::kFloat32);
  if (c.has(2)) wide = ops::sub(wide, ops::cast(spread(c.in(2), x, axis, block), wide.dtype()));
  return ops::cast(ops::mul(ops::cast(wide, DType::kFloat32), ops::cast(scale, DType::kFloat32)),
                   c.dtype("output_dtype", c.in(1).dtype()));
}

Items quantized_by_range(const Call& c) {
  const Value& x = c.in(0);
  const Value high = ops::maximum(ops::amax(x), 0), low = ops::minimum(ops::amin(x), 0);
  const Value all = ops::sub(high, low);
  const Value scale = ops::div(ops::where(ops::eq(all, 0), ops::ones_like(all), all), 255.0);
  const Value zero = ops::round(ops::clamp(ops::div(ops::neg(low), scale), Operand(0.0), Operand(255.0)));
  return {saturated(ops::div(x, scale), zero, DType::kUInt8), scale, ops::cast(zero, DType::kUInt8)};
}

// x - zero as floats of 64 bits, in which sums of products of 8-bit numbers are exact. Rows of a matrix, or channels of
// a weight, may have a zero each.
Value exact(const Value& x, const Value& zero, int axis) {
  const Value wide = ops::cast(x, DType::kFloat64);
  if (!zero.defined()) return wide;
  Value z = ops::cast(zero, DType::kFloat64);
  if (z.rank() == 1 && numel(z.shape()) > 1) {
    Ints shape(static_cast<size_t>(x.rank()), 1);
    shape[static_cast<size_t>(axis < 0 ? axis + x.rank() : axis)] = z.shape()[0];
    z = ops::reshape(z, shape);
  } else if (numel(z.shape()) == 1) {
    z = ops::reshape(z, {});
  }
  return ops::sub(wide, z);
}

Value integer_product(const Call& c) {
  const Value y = ops::matmul(exact(c.in(0), c.opt(2), -2), exact(c.in(1), c.opt(3), -1));
  return ops::cast(y, DType::kInt32);
}

Value integer_convolution(const Call& c) {
  return ops::cast(convolved(c, exact(c.in(0), c.opt(2), 1), exact(c.in(1), c.opt(3), 0), {}), DType::kInt32);
}

Value wide_scale(const Value& v, int axis, int rank) {
  const Value wide = ops::cast(v, DType::kFloat64);
  if (numel(v.shape()) == 1) return ops::reshape(wide, {});
  if (v.rank() != 1) return wide;
  Ints shape(static_cast<size_t>(rank), 1);
  shape[static_cast<size_t>(axis < 0 ? axis + rank : axis)] = v.shape()[0];
  return ops::reshape(wide, shape);
}

Value scaled_product(const Call& c) {
  const Value sums = ops::matmul(exact(c.in(0), c.in(2), -2), exact(c.in(3), c.in(5), -1));
  const int rank = std::max(sums.rank(), 1);
  const Value factor =
      ops::div(ops::mul(wide_scale(c.in(1), -2, rank), wide_scale(c.in(4), -1, rank)), wide_scale(c.in(6), -1, rank));
  return saturated(ops::mul(sums, factor), wide_scale(c.in(7), -1, rank), c.in(7).dtype());
}

Value scaled_convolution(const Call& c) {
  Value sums = convolved(c, exact(c.in(0), c.in(2), 1), exact(c.in(3), c.in(5), 0), {});
  if (c.has(8)) {
    Ints shape(static_cast<size_t>(sums.rank()), 1);
    shape[1] = -1;
    sums = ops::add(sums, ops::reshape(ops::cast(c.in(8), DType::kFloat64), shape));
  }
  const int rank = sums.rank();
  const Value factor =
      ops::div(ops::mul(wide_scale(c.in(1), 1, rank), wide_scale(c.in(4), 1, rank)), wide_scale(c.in(6), 1, rank));
  return saturated(ops::mul(sums, factor), wide_scale(c.in(7), 1, rank), c.in(7).dtype());
}

}  // namespace

Entries quantization_entries() {
  return {
      {"ConvInteger", integer_convolution},
      {"DequantizeLinear", dequantized, 6},
      {"DynamicQuantizeLinear", quantized_by_range},
      {"MatMulInteger", integer_product},
      {"QLinearConv", scaled_convolution, 214},
      {"QLinearMatMul", scaled_product, 246},
      {"QuantizeLinear", quantized, 6},
  };
}

}  // namespace sluice::onnx
