#include "base/elements.h"

#include <cstring>
#include <type_traits>

namespace sluice {

namespace {

template <class T>
double number(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>)
    return to_float(value);
  else
    return static_cast<double>(value);
}

}  // namespace

double element_of(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8: return number<uint8_t>(at);
    case DType::kInt8: return number<int8_t>(at);
    case DType::kInt16: return number<int16_t>(at);
    case DType::kInt32: return number<int32_t>(at);
    case DType::kInt64: return number<int64_t>(at);
    case DType::kFloat16: return number<Float16>(at);
    case DType::kBFloat16: return number<BFloat16>(at);
    case DType::kFloat32:
    case DType::kComplex64: return number<float>(at);
    case DType::kFloat64:
    case DType::kComplex128: return number<double>(at);
  }
  return 0;
}

}  // namespace sluice
