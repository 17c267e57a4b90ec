#include "graph/ops/quantization.h"

#include "graph/executor.h"
#include "graph/operand.h"
#include "graph/ops/activation.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/convolution.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/matmul.h"
#include "graph/ops/movement.h"
#include "graph/ops/norm_common.h"
#include "graph/ops/reduction.h"

namespace sluice::ops {
namespace {

using namespace int8_conv_input;

bool is_8bit(DType dtype) { return dtype == DType::kUInt8 || dtype == DType::kInt8; }
double least_integer(DType dtype) { return dtype == DType::kUInt8 ? 0 : -128; }
double largest_integer(DType dtype) { return dtype == DType::kUInt8 ? 255 : 127; }

// --- quantize, dequantize

// Throws unless `parameter` has one element, or one for each slice of an axis of x.
void check_slices(const TensorType& x, const TensorType& parameter, const char* name, const Attrs& attrs) {
  const int64_t n = numel(parameter.shape), axis = attr<int64_t>(attrs, 0);
  if (n == 1 && parameter.shape.rank() <= 1) return;
  SLUICE_CHECK_KIND(kRuntime, axis >= 0 && axis < x.shape.rank(), "axis is {}; must be below {}, the rank of {}", axis,
                    x.shape.rank(), x.str());
  SLUICE_CHECK_KIND(kRuntime, parameter.shape == Shape({x.shape[static_cast<int>(axis)]}),
                    "{} does not fit: {}; must have one element, or {} for axis {} of {}", name, parameter.str(),
                    x.shape[static_cast<int>(axis)], axis, x.str());
}
void check_parameters(Types in, Present present, const Attrs& attrs) {
  check_floating(in[1], "scale");
  check_slices(in[0], in[1], "scale", attrs);
  if (!present[2]) return;
  SLUICE_CHECK_KIND(kRuntime, in[2].dtype == DType::kInt32, "zero_point: got {}; must be int32", in[2].str());
  check_slices(in[0], in[2], "zero_point", attrs);
}

std::vector<TensorType> infer_quantize(Types in, Present present, const Attrs& attrs) {
  check_floating(in[0], "x");
  check_parameters(in, present, attrs);
  const DType dtype = attr<DType>(attrs, 1);
  SLUICE_CHECK(is_8bit(dtype), "dtype is {}; must be uint8 or int8", dtype_name(dtype));
  return {{dtype, in[0].shape}};
}
std::vector<TensorType> infer_dequantize(Types in, Present present, const Attrs& attrs) {
  SLUICE_CHECK_KIND(kRuntime, is_8bit(in[0].dtype), "q: got {}; must be uint8 or int8", in[0].str());
  check_parameters(in, present, attrs);
  return {{in[1].dtype, in[0].shape}};
}

// A parameter so that it broadcasts to `x`.
Value along_slices(const Value& parameter, const Value& x, const Attrs& attrs) {
  Ints shape(x.rank(), 1);
  if (numel(parameter.shape()) != 1) shape[attr<int64_t>(attrs, 0)] = parameter.shape()[0];
  return reshape(parameter, shape);
}
Value saturated(DType dtype, const Value& x) {
  return cast(clamp(x, Operand(least_integer(dtype)), Operand(largest_integer(dtype))), dtype);
}

std::vector<Value> decompose_quantize(std::span<const Value> in, const Attrs& attrs) {
  const DType compute = stat_dtype(in[0].dtype());
  Value q = round(div(cast(in[0], compute), cast(along_slices(in[1], in[0], attrs), compute)));
  const Value zero = input_or_none(in, 2);
  if (zero.defined()) q = add(q, cast(along_slices(zero, in[0], attrs), compute));
  return {saturated(attr<DType>(attrs, 1), q)};
}
std::vector<Value> decompose_dequantize(std::span<const Value> in, const Attrs& attrs) {
  const Value scale = along_slices(in[1], in[0], attrs), zero = input_or_none(in, 2);
  const DType compute = stat_dtype(scale.dtype());
  Value x = cast(in[0], compute);
  if (zero.defined()) x = sub(x, cast(along_slices(zero, in[0], attrs), compute));
  return {cast(mul(x, cast(scale, compute)), scale.dtype())};
}

const Param kSlicedAxis{.name = "axis", .default_value = int64_t{0}};
const SampleInput kSlices3{.shape = {3}, .low = 0.01, .high = 0.1}, kOneScale{.shape = {1}, .low = 0.02, .high = 0.03};
const SampleInput kZeros3{.shape = {3}, .dtype = DType::kInt32, .low = -4, .high = 4};
const SampleInput kOneZero{.shape = {1}, .dtype = DType::kInt32, .low = 1, .high = 9};

SampleInput sample_of_int8(Shape shape, DType dtype = DType::kUInt8) {
  return {.shape = std::move(shape), .dtype = dtype, .low = dtype == DType::kUInt8 ? 0. : -128., .high = 127};
}

const OpDef quantize_def{
    .name = "quantize",
    .doc =
        "round(x / scale) + zero_point as uint8 or int8: halves to even, what is out of range becomes the nearest "
        "integer in it. scale and zero_point have one element, or one for each slice of `axis`.",
    .inputs = {"x", "scale", "zero_point?"},
    .params = {kSlicedAxis, {.name = "dtype", .default_value = DType::kUInt8}},
    .infer = infer_quantize,
    .grad = no_gradient,
    .decompose = decompose_quantize,
    .sbp = broadcast_sbp,
    .samples = {{{{{2, 3, 4}}, kOneScale, {.shape = {1}, .dtype = DType::kInt32, .low = 100, .high = 140}}},
                {{{{2, 3, 4}}, kSlices3, kZeros3}, {int64_t{1}, DType::kInt8}},
                {{{{3, 5}}, kSlices3, kAbsent}, {int64_t{0}, DType::kInt8}},
                {{{{0, 3}}, kOneScale, kAbsent}}}};

const OpDef dequantize_def{
    .name = "dequantize",
    .doc = "(q - zero_point) * scale: the floats that the integers of quantize stand for, in the dtype of scale.",
    .inputs = {"q", "scale", "zero_point?"},
    .params = {kSlicedAxis},
    .infer = infer_dequantize,
    .decompose = decompose_dequantize,
    .sbp = broadcast_sbp,
    .samples = {{{sample_of_int8({2, 3, 4}), kOneScale, kOneZero}},
                {{sample_of_int8({2, 3, 4}, DType::kInt8), kSlices3, kZeros3}, {int64_t{1}}},
                {{sample_of_int8({3, 5}, DType::kInt8), kSlices3, kAbsent}},
                {{sample_of_int8({0, 3}), kOneScale, kAbsent}}}};

// --- int8_conv, int8_linear

Attrs attrs_of_int8_conv(const Attrs& attrs) { return {attrs.begin() + int8_attr::kConv, attrs.end()}; }

void check_scalar_of_int8(const TensorType& got, DType dtype, const char* name) {
  SLUICE_CHECK_KIND(kRuntime, got == (TensorType{dtype, {1}}), "{}: got {}; must be {}", name, got.str(),
                    TensorType{dtype, {1}}.str());
}
// The type of a result of `shape` that has a scale for each of its `channels`.
TensorType infer_int8(Types in, Present present, const Attrs& attrs, const Shape& shape, int64_t channels) {
  const TensorType& scale = in[kScale];
  SLUICE_CHECK_KIND(kRuntime, scale.dtype == DType::kFloat32 || scale.dtype == DType::kFloat64,
                    "scale: got {}; must be float32 or float64", scale.str());
  for (const int i : {kScale, kShift})
    SLUICE_CHECK_KIND(kRuntime, !present[i] || in[i] == (TensorType{scale.dtype, {channels}}),
                      "{}: got {}; must be {}, an element for each output channel", i == kScale ? "scale" : "shift",
                      in[i].str(), TensorType{scale.dtype, {channels}}.str());
  if (present[kZero]) check_scalar_of_int8(in[kZero], DType::kInt32, "x_zero");
  const std::string& activation = attr<std::string>(attrs, int8_attr::kActivation);
  SLUICE_CHECK(activation == "none" || activation == "relu", "activation: got \"{}\"; must be none or relu",
               activation);
  if (attr_is_none(attrs, int8_attr::kDtype)) return {scale.dtype, shape};
  const DType dtype = attr<DType>(attrs, int8_attr::kDtype);
  SLUICE_CHECK(is_8bit(dtype), "dtype is {}; must be uint8 or int8, or none for a result in floats", dtype_name(dtype));
  return {dtype, shape};
}
void check_int8_operands(Types in) {
  SLUICE_CHECK_KIND(kRuntime, is_8bit(in[kX].dtype) && in[kWeight].dtype == DType::kInt8,
                    "operands: got {} and {}; x must be uint8 or int8, weight int8", in[kX].str(), in[kWeight].str());
}

std::vector<TensorType> infer_int8_conv(Types in, Present present, const Attrs& attrs) {
  check_int8_operands(in);
  const TensorType floats[] = {{DType::kFloat32, in[kX].shape}, {DType::kFloat32, in[kWeight].shape}, {}};
  const bool both[] = {true, true, false};
  const Shape y = infer_types(conv_op(), floats, both, attrs_of_int8_conv(attrs))[0].shape;
  const TensorType result = infer_int8(in, present, attrs, y, y[1]);
  if (present[kResidual])
    SLUICE_CHECK_KIND(
        kRuntime, in[kResidual].shape == y && (is_8bit(in[kResidual].dtype) || in[kResidual].dtype == in[kScale].dtype),
        "residual does not fit: {}; must be uint8, int8 or {}", in[kResidual].str(),
        TensorType{in[kScale].dtype, y}.str());
  if (present[kResidualScale]) check_scalar_of_int8(in[kResidualScale], in[kScale].dtype, "residual_scale");
  return {result};
}
std::vector<TensorType> infer_int8_linear(Types in, Present present, const Attrs& attrs) {
  check_int8_operands(in);
  const Shape &x = in[kX].shape, &w = in[kWeight].shape;
  SLUICE_CHECK_KIND(kRuntime, w.rank() == 2 && x.rank() >= 1 && x[x.rank() - 1] == w[1],
                    "operands do not fit: x is {}, weight is {}; weight must be (out_features, x.shape[-1])", x.str(),
                    w.str());
  Shape y = x;
  y[y.rank() - 1] = w[0];
  return {infer_int8(in, present, attrs, y, w[0])};
}

// Finishes the product, whose channels are on `axis`.
std::vector<Value> finish_int8(Value y, std::span<const Value> in, const Attrs& attrs, int axis) {
  const auto operand = [&](size_t i) { return input_or_none(in, i); };
  Ints rows(y.rank(), 1);
  rows[axis] = y.shape()[axis];
  y = mul(y, reshape(in[kScale], rows));
  if (operand(kShift).defined()) y = add(y, reshape(in[kShift], rows));
  if (operand(kResidual).defined()) {
    Value residual = cast(in[kResidual], y.dtype());
    if (operand(kResidualScale).defined()) residual = mul(residual, in[kResidualScale]);
    y = add(y, residual);
  }
  if (attr<std::string>(attrs, int8_attr::kActivation) == "relu") y = relu(y);
  if (attr_is_none(attrs, int8_attr::kDtype)) return {y};
  return {saturated(attr<DType>(attrs, int8_attr::kDtype), round(y))};
}
// Sums of products of 8-bit integers are exact in float32 up to 2^24, and then to one part in as many.
Value int8_as_floats(std::span<const Value> in) {
  const Value x = cast(in[kX], in[kScale].dtype()), zero = input_or_none(in, kZero);
  return zero.defined() ? sub(x, cast(zero, x.dtype())) : x;
}
std::vector<Value> decompose_int8_conv(std::span<const Value> in, const Attrs& attrs) {
  const Value x = int8_as_floats(in);
  return finish_int8(call1(conv_op(), {x, cast(in[kWeight], x.dtype()), Value()}, attrs_of_int8_conv(attrs)), in, attrs,
                     1);
}
std::vector<Value> decompose_int8_linear(std::span<const Value> in, const Attrs& attrs) {
  const Value x = int8_as_floats(in);
  return finish_int8(linear(x, cast(in[kWeight], x.dtype())), in, attrs, x.rank() - 1);
}

std::vector<SbpRow> sbp_int8(Types in, const Attrs&) {
  const Sbp whole = Sbp::broadcast(), part = Sbp::split(0);
  const SbpRow all{std::vector<Sbp>(in.size(), whole), {whole}};
  if (in[kX].shape.rank() < 2) return {all};
  SbpRow batch{std::vector<Sbp>(in.size(), whole), {part}};
  batch.inputs[kX] = part;
  if (in.size() > kResidual && in[kResidual].shape.rank() > 0) batch.inputs[kResidual] = part;
  return {batch, all};
}

Cost cost_of_products(Types in, Types out) {
  const Shape& w = in[kWeight].shape;
  const double taps = w[0] == 0 ? 0 : static_cast<double>(numel(w)) / static_cast<double>(w[0]);
  return {2 * taps * static_cast<double>(numel(out[0].shape)), operand_bytes(in, out)};
}

const SampleInput kRow4{.shape = {4}, .low = 0.0005, .high = 0.002}, kShift4{.shape = {4}, .low = -3, .high = 3};
const SampleInput kQuanta4{.shape = {4}, .low = 0.005, .high = 0.02},
    kResidualStep{.shape = {1}, .low = 0.3, .high = 0.6};
const Attr kPlain = std::string("none"), kWithRelu = std::string("relu"), kUnrounded = NoAttr(), kU8 = DType::kUInt8,
           kS8 = DType::kInt8;
const Param kActivationOfInt8{.name = "activation", .default_value = std::string("none")},
    kDtypeOfInt8{.name = "dtype", .default_value = DType::kUInt8, .nullable = true};

const OpDef int8_conv_def{
    .name = "int8_conv",
    .doc =
        "act(conv(x - x_zero, weight) * scale + shift + residual * residual_scale) of 8-bit integers, with sums in "
        "32 bits; scale and shift have an element for each output channel. dtype: uint8 or int8, to which the "
        "result is rounded, or none. What compiling makes of convolutions between quantize and dequantize.",
    .inputs = {"x", "weight", "scale", "shift?", "x_zero?", "residual?", "residual_scale?"},
    .params = {kActivationOfInt8,
               kDtypeOfInt8,
               {.name = "stride", .default_value = Ints{}, .required = true},
               {.name = "padding", .default_value = Ints{}, .required = true},
               {.name = "dilation", .default_value = Ints{}, .required = true},
               {.name = "groups", .default_value = int64_t{1}}},
    .infer = infer_int8_conv,
    .decompose = decompose_int8_conv,
    .sbp = sbp_int8,
    .cost = [](Types in, Types out, const Attrs&) { return cost_of_products(in, out); },
    .samples = {
        {{sample_of_int8({2, 3, 6, 5}), sample_of_int8({4, 3, 3, 3}, DType::kInt8), kRow4, kShift4, kAbsent, kAbsent,
          kAbsent},
         {kWithRelu, kUnrounded, Ints{1, 1}, Ints{1, 1}, Ints{1, 1}, int64_t{1}}},
        {{sample_of_int8({2, 3, 6, 5}), sample_of_int8({4, 3, 3, 3}, DType::kInt8), kQuanta4, kShift4, kOneZero,
          sample_of_int8({2, 4, 6, 5}), kResidualStep},
         {kWithRelu, kU8, Ints{1, 1}, Ints{1, 1}, Ints{1, 1}, int64_t{1}}},
        {{sample_of_int8({2, 4, 7, 7}, DType::kInt8),
          sample_of_int8({4, 2, 3, 2}, DType::kInt8),
          kQuanta4,
          kAbsent,
          kAbsent,
          {{2, 4, 3, 7}},
          kAbsent},
         {kPlain, kS8, Ints{2, 1}, Ints{0, 1}, Ints{1, 2}, int64_t{2}}},
        {{sample_of_int8({2, 3, 9}),
          sample_of_int8({4, 3, 3}, DType::kInt8),
          kRow4,
          kAbsent,
          kOneZero,
          {{2, 4, 4}},
          kResidualStep},
         {kPlain, kUnrounded, Ints{2}, Ints{1}, Ints{2}, int64_t{1}}},
        {{sample_of_int8({0, 3, 4, 4}), sample_of_int8({4, 3, 1, 1}, DType::kInt8), kRow4, kShift4, kAbsent, kAbsent,
          kAbsent},
         {kPlain, kU8, Ints{1, 1}, Ints{0, 0}, Ints{1, 1}, int64_t{1}}},
    }};

const OpDef int8_linear_def{
    .name = "int8_linear",
    .doc =
        "act((x - x_zero) weight^T * scale + shift) of 8-bit integers, with sums in 32 bits: int8_conv's for "
        "products.",
    .inputs = {"x", "weight", "scale", "shift?", "x_zero?"},
    .params = {kActivationOfInt8, kDtypeOfInt8},
    .infer = infer_int8_linear,
    .decompose = decompose_int8_linear,
    .sbp = sbp_int8,
    .cost = [](Types in, Types out, const Attrs&) { return cost_of_products(in, out); },
    .samples = {
        {{sample_of_int8({3, 8}), sample_of_int8({4, 8}, DType::kInt8), kRow4, kShift4, kOneZero},
         {kWithRelu, kUnrounded}},
        {{sample_of_int8({2, 3, 5}, DType::kInt8), sample_of_int8({4, 5}, DType::kInt8), kQuanta4, kAbsent, kAbsent},
         {kPlain, kS8}},
        {{sample_of_int8({6}), sample_of_int8({4, 6}, DType::kInt8), kQuanta4, kShift4, kAbsent}, {kPlain, kU8}},
        {{sample_of_int8({0, 6}), sample_of_int8({4, 6}, DType::kInt8), kQuanta4, kShift4, kAbsent}, {kPlain, kU8}}}};

}  // namespace

Value quantize(const Value& x, const Value& scale, const Value& zero_point, const QuantizeOptions& options) {
  return call1(quantize_def, {x, scale, zero_point}, {options.axis, options.dtype});
}
Value dequantize(const Value& q, const Value& scale, const Value& zero_point, int64_t axis) {
  return call1(dequantize_def, {q, scale, zero_point}, {axis});
}

IntegerRange range_of(const Value& x) {
  const DType dtype = stat_dtype(x.dtype());
  if (numel(x.shape()) == 0) return {full({1}, 1, dtype), full({1}, 0, DType::kInt32)};
  const auto end = [&](const Value& of) { return reshape(cast(of, dtype), {1}); };
  const Value low = clamp(end(amin(x)), {}, Operand(0.0)), high = clamp(end(amax(x)), Operand(0.0), {});
  const Value scale = clamp(div(sub(high, low), 255.0), Operand(1e-30), {});  // of nothing but zeros
  return {scale, cast(clamp(round(div(neg(low), scale)), Operand(0.0), Operand(255.0)), DType::kInt32)};
}

const OpDef& quantize_op() { return quantize_def; }
const OpDef& dequantize_op() { return dequantize_def; }
const OpDef& int8_conv_op() { return int8_conv_def; }
const OpDef& int8_linear_op() { return int8_linear_def; }

std::span<const OpDef* const> quantization_ops() {
  static const OpDef* const ops[] = {&quantize_def, &dequantize_def, &int8_conv_def, &int8_linear_def};
  return ops;
}

}  // namespace sluice::ops
