#pragma once
// Element types.
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice {

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
inline constexpr int kNumDTypes = 12;

size_t dtype_size(DType dtype);            // bytes per element
const char* dtype_name(DType dtype);       // "float32"
DType parse_dtype(std::string_view name);  // throws kValue naming the accepted names
bool is_floating(DType dtype);             // real numbers: complex ones are not
bool is_complex(DType dtype);
bool is_differentiable(DType dtype);  // floating or complex: what gradients exist of
bool is_integral(DType dtype);        // integers, without bool
// The dtype torch's promotion gives for two tensors of these dtypes.
DType promote(DType a, DType b);
// The complex dtype whose parts hold a floating one, and the dtype of the parts of a complex one; others stay. 16-bit
// floats have complex64.
DType to_complex(DType dtype);
DType to_real(DType dtype);

// 16-bit floats as plain bits; arithmetic is done in float32.
struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};
float to_float(BFloat16 v);
float to_float(Float16 v);
BFloat16 to_bfloat16(float v);  // round to nearest even
Float16 to_float16(float v);    // round to nearest even

// The number as a floating dtype holds it.
double round_to(DType dtype, double number);
// The largest number that a floating dtype holds.
double largest(DType dtype);

}  // namespace sluice
