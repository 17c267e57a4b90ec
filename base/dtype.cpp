#include "base/dtype.h"

#include <array>
#include <bit>
#include <limits>

#include "base/error.h"

namespace sluice {
namespace {

struct Info {
  const char* name;
  size_t size;
};
constexpr std::array<Info, kNumDTypes> kInfo = {{{"bool", 1},
                                                 {"uint8", 1},
                                                 {"int8", 1},
                                                 {"int16", 2},
                                                 {"int32", 4},
                                                 {"int64", 8},
                                                 {"float16", 2},
                                                 {"bfloat16", 2},
                                                 {"float32", 4},
                                                 {"float64", 8},
                                                 {"complex64", 8},
                                                 {"complex128", 16}}};

}  // namespace

size_t dtype_size(DType dtype) { return kInfo[static_cast<size_t>(dtype)].size; }
const char* dtype_name(DType dtype) { return kInfo[static_cast<size_t>(dtype)].name; }

DType parse_dtype(std::string_view name) {
  for (int i = 0; i < kNumDTypes; ++i)
    if (name == kInfo[i].name) return static_cast<DType>(i);
  std::string known;
  for (const Info& info : kInfo) known += fmt::format("{}{}", known.empty() ? "" : ", ", info.name);
  fail(ErrorKind::kValue, "dtype: unknown name: '{}'; must be one of {}", name, known);
}

bool is_floating(DType d) { return d >= DType::kFloat16 && d <= DType::kFloat64; }
bool is_complex(DType d) { return d >= DType::kComplex64; }
bool is_differentiable(DType d) { return d >= DType::kFloat16; }
bool is_integral(DType d) { return d > DType::kBool && d < DType::kFloat16; }

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (a > b) std::swap(a, b);
  if (a == DType::kBool) return b;
  if (is_complex(b)) return a == DType::kFloat64 ? DType::kComplex128 : b;
  if (is_floating(b)) {
    const bool two_halves = a == DType::kFloat16 && b == DType::kBFloat16;
    return two_halves ? DType::kFloat32 : b;
  }
  // Integers of one sign rule: uint8 with int8 needs int16, otherwise the wider wins.
  if (a == DType::kUInt8 && b == DType::kInt8) return DType::kInt16;
  return b;
}

DType to_complex(DType d) {
  if (d == DType::kFloat64) return DType::kComplex128;
  return is_floating(d) ? DType::kComplex64 : d;
}

DType to_real(DType d) {
  if (d == DType::kComplex64) return DType::kFloat32;
  return d == DType::kComplex128 ? DType::kFloat64 : d;
}

float to_float(BFloat16 v) { return std::bit_cast<float>(uint32_t{v.bits} << 16); }

BFloat16 to_bfloat16(float v) {
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};  // keep NaN a NaN
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

float to_float(Float16 v) {
  _Float16 h;
  static_assert(sizeof(h) == sizeof(v.bits));
  h = std::bit_cast<_Float16>(v.bits);
  return static_cast<float>(h);
}

Float16 to_float16(float v) { return {std::bit_cast<uint16_t>(static_cast<_Float16>(v))}; }

double round_to(DType dtype, double number) {
  const auto narrow = static_cast<float>(number);
  if (dtype == DType::kFloat16) return to_float(to_float16(narrow));
  if (dtype == DType::kBFloat16) return to_float(to_bfloat16(narrow));
  return dtype == DType::kFloat32 ? narrow : number;
}

double largest(DType dtype) {
  if (dtype == DType::kFloat16) return 65504;
  if (dtype == DType::kBFloat16) return 0x1.fep127;
  return dtype == DType::kFloat32 ? std::numeric_limits<float>::max() : std::numeric_limits<double>::max();
}

}  // namespace sluice
