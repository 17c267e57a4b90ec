#pragma once
// Loads and stores of any floating dtype through the type that sums are made in.
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "base/error.h"
#include "kernels/cpu/math/complex_numbers.h"
#include "kernels/cpu/math/vector_math.h"

namespace sluice::cpu {

template <class T>
struct Numeric {
  using Compute = T;
};
template <>
struct Numeric<BFloat16> {
  using Compute = float;
};
template <>
struct Numeric<Float16> {
  using Compute = float;
};
// float32 for 16-bit floats, else the type itself.
template <class T>
using Compute = typename Numeric<T>::Compute;

inline float load(float v) { return v; }
inline double load(double v) { return v; }
template <class T>
inline std::complex<T> load(std::complex<T> v) {
  return v;
}
inline float load(BFloat16 v) { return std::bit_cast<float>(static_cast<uint32_t>(v.bits) << 16); }
inline float load(Float16 v) { return to_float(v); }
template <class T>
requires std::is_integral_v<T>
inline T load(T v) { return v; }

inline void store(float* to, float v) { *to = v; }
inline void store(double* to, double v) { *to = v; }
template <class T>
inline void store(std::complex<T>* to, std::complex<T> v) {
  *to = v;
}
inline void store(BFloat16* to, float v) {
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  to->bits = nan ? 0x7fc0 : static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}
inline void store(Float16* to, float v) { *to = to_float16(v); }
template <class T>
requires std::is_integral_v<T>
inline void store(T* to, T v) { *to = v; }

inline float exponential(float x) { return exp_f(x); }
inline double exponential(double x) { return std::exp(x); }

// Calls `f` with a value of the C++ type of a floating dtype.
template <class F>
auto dispatch_floating(DType dtype, const char* op, F f) {
  switch (dtype) {
    case DType::kFloat32: return f(float{});
    case DType::kFloat64: return f(double{});
    case DType::kBFloat16: return f(BFloat16{});
    case DType::kFloat16: return f(Float16{});
    default: fail(ErrorKind::kUnsupported, "{}: no kernel for dtype {}; cast to a float dtype", op, dtype_name(dtype));
  }
}

}  // namespace sluice::cpu
