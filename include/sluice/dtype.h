#pragma once
// Element types.
#include <cstddef>
#include <cstdint>

#include "export.h"

namespace sluice::api {

enum class DType : uint8_t {
  kBool,
  kUInt8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kComplex64,
  kComplex128,
};
SLUICE_API const char* dtype_name(DType dtype);  // "float32"
SLUICE_API size_t dtype_size(DType dtype);       // bytes per element
// Both throw kValue for what is none.

// The DType of a C++ type: dtype_of<float>(). A type that holds a real and an imaginary float or double, as
// std::complex does, is complex.
template <class T>
DType dtype_of() {
  static_assert(sizeof(typename T::value_type) * 2 == sizeof(T) && sizeof(T) >= 8 && sizeof(T) <= 16,
                "dtype_of<T>: T is no element type; take a number of <cstdint>, bool, float, double or std::complex");
  static_assert(static_cast<typename T::value_type>(0.5) != 0 && sizeof(T{}.real()) * 2 == sizeof(T) &&
                    sizeof(T{}.imag()) * 2 == sizeof(T),
                "dtype_of<T>: T is no element type; a complex one has real() and imag() of float or double");
  return sizeof(T) == 8 ? DType::kComplex64 : DType::kComplex128;
}

template <>
inline DType dtype_of<bool>() {
  return DType::kBool;
}
template <>
inline DType dtype_of<uint8_t>() {
  return DType::kUInt8;
}
template <>
inline DType dtype_of<int8_t>() {
  return DType::kInt8;
}
template <>
inline DType dtype_of<int16_t>() {
  return DType::kInt16;
}
template <>
inline DType dtype_of<int32_t>() {
  return DType::kInt32;
}
template <>
inline DType dtype_of<int64_t>() {
  return DType::kInt64;
}
template <>
inline DType dtype_of<float>() {
  return DType::kFloat32;
}
template <>
inline DType dtype_of<double>() {
  return DType::kFloat64;
}

}  // namespace sluice::api
