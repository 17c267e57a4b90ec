// Convolutions and products of 8-bit integers whose sums are scaled by integers alone, as TFLite's reference kernels
// and machines without floats do it. The arithmetic of an element is requantized_i of base/scalar/fixed_point.inc.
#include "graph/executor.h"
#include "graph/operand.h"
#include "graph/ops/activation.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/convolution.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/movement.h"
#include "graph/ops/quantization.h"

namespace sluice::ops {
namespace {

bool is_byte(DType dtype) { return dtype == DType::kUInt8 || dtype == DType::kInt8; }

// Checks that an operand is int32 with an element for each of `channels`.
void check_of_channels(const TensorType& got, int64_t channels, const char* name) {
  const TensorType wanted{DType::kInt32, {channels}};
  SLUICE_CHECK_KIND(kRuntime, got == wanted, "{}: got {}; must be {}, an element for each output channel", name,
                    got.str(), wanted.str());
}
// The dtype of a result, which holds low and high.
DType checked_range(const Attr& dtype, int64_t low, int64_t high) {
  const auto type = std::get<DType>(dtype);
  SLUICE_CHECK(is_byte(type), "dtype is {}; must be uint8 or int8", dtype_name(type));
  const int64_t least = type == DType::kUInt8 ? 0 : -128, most = type == DType::kUInt8 ? 255 : 127;
  SLUICE_CHECK(least <= low && low <= high && high <= most,
               "low is {} and high {}; must lie in {} to {}, in this order", low, high, least, most);
  return type;
}

const Param kDtypeOfResult{.name = "dtype", .default_value = DType::kInt8};
const Param kZeroOfX{.name = "x_zero", .default_value = int64_t{0}};
const Param kZeroOfY{.name = "y_zero", .default_value = int64_t{0}};
const Param kLowest{.name = "low", .default_value = int64_t{-128}};
const Param kHighest{.name = "high", .default_value = int64_t{127}};

// --- requantize

namespace scaling {
enum { kAxis, kDtype, kZero, kLow, kHigh };
}

std::vector<TensorType> infer_requantize(Types in, Present, const Attrs& attrs) {
  using namespace requantize_input;
  const int64_t axis = attr<int64_t>(attrs, scaling::kAxis);
  SLUICE_CHECK_KIND(kRuntime, in[kX].dtype == DType::kInt32, "x: got {}; must be int32", in[kX].str());
  SLUICE_CHECK_KIND(kRuntime, axis >= 0 && axis < in[kX].shape.rank(), "axis is {}; must be below {}, the rank of {}",
                    axis, in[kX].shape.rank(), in[kX].str());
  const int64_t channels = in[kX].shape[static_cast<int>(axis)];
  check_of_channels(in[kMultiplier], channels, "multiplier");
  check_of_channels(in[kExponent], channels, "exponent");
  return {
      {checked_range(attrs[scaling::kDtype], attr<int64_t>(attrs, scaling::kLow), attr<int64_t>(attrs, scaling::kHigh)),
       in[kX].shape}};
}

// Integers of 64 bits hold every step between.
std::vector<Value> decompose_requantize(std::span<const Value> in, const Attrs& attrs) {
  using namespace requantize_input;
  const Value& x = in[kX];
  const auto along = [&](const Value& row) {
    Ints shape(x.rank(), 1);
    shape[attr<int64_t>(attrs, scaling::kAxis)] = row.shape()[0];
    return cast(reshape(row, shape), DType::kInt64);
  };
  const auto number = [&](int i) { return Operand(attr<int64_t>(attrs, i)); };
  const int64_t smallest = -2147483648, largest = 2147483647, half = 1073741824;
  const Value multiplier = along(in[kMultiplier]), exponent = along(in[kExponent]);
  const Value left = clamp(exponent, Operand(0), Operand(31)), right = clamp(neg(exponent), Operand(0), {});
  const Value wide = clamp(bitwise_left_shift(cast(x, DType::kInt64), left), Operand(smallest), Operand(largest));
  const Value product = mul(wide, multiplier);
  const Value quotient = where(lt(product, 0), neg(bitwise_right_shift(sub(half - 1, product), 31)),
                               bitwise_right_shift(add(product, half), 31));
  const Value high = clamp(quotient, {}, Operand(largest));
  const Value nudge =
      sub(bitwise_left_shift(full({}, 1, DType::kInt64), sub(right, 1)), cast(lt(high, 0), DType::kInt64));
  const Value rounded = where(gt(right, 31), 0, bitwise_right_shift(add(high, nudge), right));
  const Value y = add(where(eq(right, 0), high, rounded), number(scaling::kZero));
  return {cast(clamp(y, number(scaling::kLow), number(scaling::kHigh)), attr<DType>(attrs, scaling::kDtype))};
}

std::vector<SbpRow> sbp_of_requantize(Types in, const Attrs& attrs) {
  const Sbp whole = Sbp::broadcast();
  std::vector<SbpRow> rows = {row_of({whole, whole, whole}, whole)};
  const auto channels = static_cast<int>(attr<int64_t>(attrs, scaling::kAxis));
  for (int axis = 0; axis < in[0].shape.rank(); ++axis) {
    const Sbp part = Sbp::split(axis), row = axis == channels ? Sbp::split(0) : whole;
    rows.push_back(row_of({part, row, row}, part));
  }
  return rows;
}

SampleInput integers_of(Shape shape, double low, double high, DType dtype = DType::kInt32) {
  return {.shape = std::move(shape), .dtype = dtype, .low = low, .high = high};
}
const SampleInput kMultiplier4 = integers_of({4}, 1 << 30, 2147483647), kLeft4 = integers_of({4}, -3, 3),
                  kRight4 = integers_of({4}, -9, -5), kBias4 = integers_of({4}, -2000, 2000);
const Attr kU8Result = DType::kUInt8, kS8Result = DType::kInt8;

const OpDef requantize_def{
    .name = "requantize",
    .doc =
        "x * multiplier * 2^(exponent - 31) + zero_point as uint8 or int8, brought into low to high, where multiplier "
        "and exponent have an element for each slice of `axis`. All arithmetic is of integers: gemmlowp's and TFLite's "
        "SaturatingRoundingDoublingHighMul, then RoundingDivideByPOT.",
    .inputs = {"x", "multiplier", "exponent"},
    .params = {{.name = "axis", .default_value = int64_t{1}},
               kDtypeOfResult,
               {.name = "zero_point", .default_value = int64_t{0}},
               kLowest,
               kHighest},
    .infer = infer_requantize,
    .grad = no_gradient,
    .decompose = decompose_requantize,
    .sbp = sbp_of_requantize,
    .samples = {{{integers_of({3, 4, 5}, -100, 100), kMultiplier4, kLeft4}},
                {{integers_of({4, 6}, -90000, 90000), kMultiplier4, kRight4},
                 {int64_t{0}, kU8Result, int64_t{120}, int64_t{3}, int64_t{250}}},
                {{integers_of({2, 4}, -2147483647, 2147483647), kMultiplier4, integers_of({4}, -40, 40)}},
                {{integers_of({0, 4}, 0, 1), kMultiplier4, kLeft4}}}};

// --- int8_conv_fixed, int8_linear_fixed

DType check_fixed(Types in, Present present, const Attrs& attrs) {
  using namespace int8_fixed_input;
  SLUICE_CHECK_KIND(kRuntime, is_byte(in[kX].dtype) && in[kWeight].dtype == DType::kInt8,
                    "operands: got {} and {}; x must be uint8 or int8, weight int8", in[kX].str(), in[kWeight].str());
  const int64_t channels = in[kWeight].shape.rank() == 0 ? 0 : in[kWeight].shape[0];
  check_of_channels(in[kMultiplier], channels, "multiplier");
  check_of_channels(in[kExponent], channels, "exponent");
  if (present[kBias]) check_of_channels(in[kBias], channels, "bias");
  const int64_t zero = attr<int64_t>(attrs, int8_fixed_attr::kXZero);
  SLUICE_CHECK(zero >= -128 && zero <= 255, "x_zero is {}; must be a value of {}", zero, dtype_name(in[kX].dtype));
  return checked_range(attrs[int8_fixed_attr::kDtype], attr<int64_t>(attrs, int8_fixed_attr::kLow),
                       attr<int64_t>(attrs, int8_fixed_attr::kHigh));
}

// The shape of int8_conv or int8_linear of the same operands.
Shape shape_of_sums(const OpDef& op, Types in, const Attrs& attrs) {
  using namespace int8_fixed_input;
  std::vector<TensorType> types(op.inputs.size());
  types[0] = in[kX], types[1] = in[kWeight], types[2] = {DType::kFloat64, {in[kWeight].shape[0]}};
  const bool present[7] = {true, true, true};
  return infer_types(op, types, std::span(present, types.size()), attrs)[0].shape;
}
Attrs attrs_of_sums(const Attrs& attrs) {
  Attrs made = {std::string("none"), NoAttr()};
  made.insert(made.end(), attrs.begin() + int8_fixed_attr::kConv, attrs.end());
  return made;
}

template <const OpDef& (*op)()>
std::vector<TensorType> infer_fixed(Types in, Present present, const Attrs& attrs) {
  const DType dtype = check_fixed(in, present, attrs);
  return {{dtype, shape_of_sums(op(), in, attrs_of_sums(attrs))}};
}

// Sums of integers are exact in float64.
template <const OpDef& (*op)()>
std::vector<Value> decompose_fixed(std::span<const Value> in, const Attrs& attrs) {
  using namespace int8_fixed_input;
  const Value bias = in.size() > kBias ? in[kBias] : Value();
  const int64_t channels = in[kWeight].shape()[0], zero = attr<int64_t>(attrs, int8_fixed_attr::kXZero);
  std::vector<Value> operands = {in[kX], in[kWeight], full({channels}, 1, DType::kFloat64),
                                 bias.defined() ? cast(bias, DType::kFloat64) : Value(),
                                 zero == 0 ? Value() : full({1}, static_cast<double>(zero), DType::kInt32)};
  operands.resize(op().inputs.size());
  const Value sums = cast(call(op(), operands, attrs_of_sums(attrs))[0], DType::kInt32);
  const bool rows = attrs.size() == int8_fixed_attr::kConv;  // of int8_linear_fixed, whose channels are the last axis
  return {call1(requantize_def, {sums, in[kMultiplier], in[kExponent]},
                {int64_t{rows ? sums.rank() - 1 : 1}, attrs[int8_fixed_attr::kDtype], attrs[int8_fixed_attr::kYZero],
                 attrs[int8_fixed_attr::kLow], attrs[int8_fixed_attr::kHigh]})};
}

std::vector<SbpRow> sbp_of_fixed(Types in, const Attrs&) {
  const Sbp whole = Sbp::broadcast(), part = Sbp::split(0);
  std::vector<SbpRow> rows = {{std::vector<Sbp>(in.size(), whole), {whole}}};
  if (in[0].shape.rank() < 2) return rows;
  SbpRow batch{std::vector<Sbp>(in.size(), whole), {part}};
  batch.inputs[0] = part;
  rows.push_back(batch);
  return rows;
}
Cost cost_of_fixed(Types in, Types out, const Attrs&) {
  const Shape& w = in[1].shape;
  const double taps = w[0] == 0 ? 0 : static_cast<double>(numel(w)) / static_cast<double>(w[0]);
  return {2 * taps * static_cast<double>(numel(out[0].shape)), operand_bytes(in, out)};
}

SampleInput bytes_of_sample(Shape shape, DType dtype) {
  return integers_of(std::move(shape), dtype == DType::kUInt8 ? 0 : -128, dtype == DType::kUInt8 ? 255 : 127, dtype);
}
const std::vector<const char*> kFixedInputs = {"x", "weight", "multiplier", "exponent", "bias?"};

const OpDef int8_conv_fixed_def{
    .name = "int8_conv_fixed",
    .doc =
        "requantize(conv(x - x_zero, weight) + bias, multiplier, exponent) of 8-bit integers, with sums in 32 bits: "
        "CONV_2D and DEPTHWISE_CONV_2D of TFLite's reference kernels to the last bit. bias, multiplier and exponent "
        "have an element for each output channel; y_zero, low and high are requantize's.",
    .inputs = kFixedInputs,
    .params = {kDtypeOfResult,
               kZeroOfX,
               kZeroOfY,
               kLowest,
               kHighest,
               {.name = "stride", .default_value = Ints{}, .required = true},
               {.name = "padding", .default_value = Ints{}, .required = true},
               {.name = "dilation", .default_value = Ints{}, .required = true},
               {.name = "groups", .default_value = int64_t{1}}},
    .infer = infer_fixed<int8_conv_op>,
    .grad = no_gradient,
    .decompose = decompose_fixed<int8_conv_op>,
    .sbp = sbp_of_fixed,
    .cost = cost_of_fixed,
    .samples = {
        {{bytes_of_sample({2, 3, 6, 5}, DType::kUInt8), bytes_of_sample({4, 3, 3, 3}, DType::kInt8), kMultiplier4,
          kRight4, kBias4},
         {kS8Result, int64_t{128}, int64_t{-9}, int64_t{-9}, int64_t{100}, Ints{1, 1}, Ints{1, 1}, Ints{1, 1},
          int64_t{1}}},
        {{bytes_of_sample({2, 4, 7, 7}, DType::kInt8), bytes_of_sample({4, 2, 3, 2}, DType::kInt8), kMultiplier4,
          kRight4, kAbsent},
         {kU8Result, int64_t{-5}, int64_t{0}, int64_t{0}, int64_t{255}, Ints{2, 1}, Ints{0, 1}, Ints{1, 2},
          int64_t{2}}},
        {{bytes_of_sample({0, 3, 4}, DType::kInt8), bytes_of_sample({4, 3, 1}, DType::kInt8), kMultiplier4, kRight4,
          kAbsent},
         {kS8Result, int64_t{0}, int64_t{0}, int64_t{-128}, int64_t{127}, Ints{1}, Ints{0}, Ints{1}, int64_t{1}}}}};

const OpDef int8_linear_fixed_def{
    .name = "int8_linear_fixed",
    .doc = "requantize((x - x_zero) weight^T + bias, multiplier, exponent): int8_conv_fixed's for products.",
    .inputs = kFixedInputs,
    .params = {kDtypeOfResult, kZeroOfX, kZeroOfY, kLowest, kHighest},
    .infer = infer_fixed<int8_linear_op>,
    .grad = no_gradient,
    .decompose = decompose_fixed<int8_linear_op>,
    .sbp = sbp_of_fixed,
    .cost = cost_of_fixed,
    .samples = {
        {{bytes_of_sample({2, 3, 8}, DType::kUInt8), bytes_of_sample({4, 8}, DType::kInt8), kMultiplier4, kRight4,
          kBias4},
         {kU8Result, int64_t{7}, int64_t{100}, int64_t{0}, int64_t{255}}},
        {{bytes_of_sample({6}, DType::kInt8), bytes_of_sample({4, 6}, DType::kInt8), kMultiplier4, kRight4, kAbsent}}}};

}  // namespace

std::span<const OpDef* const> fixed_point_ops() {
  static const OpDef* const ops[] = {&requantize_def, &int8_conv_fixed_def, &int8_linear_fixed_def};
  return ops;
}

}  // namespace sluice::ops
