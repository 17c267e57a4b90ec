#include "kernels/cpu/strides/tiles.h"

#include <bit>

#include "base/error.h"
#include "kernels/cpu/math/vector_math.h"
#include "kernels/cpu/strides/float16_lines.h"
#include "kernels/cpu/strides/spread.h"

namespace sluice::cpu {
namespace {

// One element as T, and back. bool is read as non-zero and written as 0 or 1.
template <class T, class E>
SLUICE_INLINE T read(E v) {
  return static_cast<T>(v);
}
template <class T, class P>
SLUICE_INLINE T read(std::complex<P> v) {
  if constexpr (std::is_same_v<T, std::complex<P>>)
    return v;
  else
    return static_cast<T>(v.real());
}
template <class T>
SLUICE_INLINE T read(BFloat16 v) {
  return static_cast<T>(from_bits(static_cast<int32_t>(uint32_t{v.bits} << 16)));
}
template <class T>
SLUICE_INLINE T read(Float16 v) {
  return static_cast<T>(static_cast<float>(std::bit_cast<_Float16>(v.bits)));
}

template <class T>
struct IsComplex : std::false_type {};
template <class P>
struct IsComplex<std::complex<P>> : std::true_type {};

// A complex number as a real element is its real part.
template <class T>
SLUICE_INLINE auto real_part(T v) {
  if constexpr (IsComplex<T>::value)
    return v.real();
  else
    return v;
}

template <class E, class T>
struct Write {
  static SLUICE_INLINE E from(T v) { return static_cast<E>(real_part(v)); }
};
template <class P, class T>
struct Write<std::complex<P>, T> {
  static SLUICE_INLINE std::complex<P> from(T v) {
    if constexpr (IsComplex<T>::value)
      return {static_cast<P>(v.real()), static_cast<P>(v.imag())};
    else
      return {static_cast<P>(v), P(0)};
  }
};
template <class T>
struct Write<bool, T> {
  static SLUICE_INLINE bool from(T v) { return v != T(0); }
};
template <class T>
struct Write<uint8_t, T> {  // through int64, so that negative values wrap
  static SLUICE_INLINE uint8_t from(T v) { return static_cast<uint8_t>(static_cast<int64_t>(real_part(v))); }
};

template <class T>
struct Write<BFloat16, T> {
  static SLUICE_INLINE BFloat16 from(T v) {
    const int32_t value = to_bits(static_cast<float>(real_part(v)));
    const uint32_t bits = static_cast<uint32_t>(value);
    const bool nan = (value & 0x7fffffff) > 0x7f800000;
    return {static_cast<uint16_t>((nan ? bits | 0x400000u : bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
  }
};
template <class T>
struct Write<Float16, T> {
  static SLUICE_INLINE Float16 from(T v) { return {std::bit_cast<uint16_t>(static_cast<_Float16>(real_part(v)))}; }
};

// 16-bit floats are common enough to be vectorised.
SLUICE_CLONES void load_line(const BFloat16* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = read<float>(x[i]);
}
SLUICE_CLONES void store_line(const float* x, BFloat16* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = Write<BFloat16, float>::from(x[i]);
}
void load_line(const Float16* x, float* y, int64_t n) { load_float16(x, y, n); }
void store_line(const float* x, Float16* y, int64_t n) { store_float16(x, y, n); }
template <class E, class T>
void load_line(const E* x, T* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = read<T>(x[i]);
}
template <class T, class E>
void store_line(const T* x, E* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = Write<E, T>::from(x[i]);
}

template <class E, class T>
void load(const void* from, int64_t stride, void* tile, int64_t n) {
  const E* x = static_cast<const E*>(from);
  T* y = static_cast<T*>(tile);
  if (stride == 0) {
    const T v = read<T>(*x);
    spread(sizeof v, &v, 1, n, y);
  } else if (stride == 1) {
    load_line(x, y, n);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = read<T>(x[i * stride]);
  }
}

template <class T, class E>
void store(const void* tile, void* to, int64_t stride, int64_t n) {
  const T* x = static_cast<const T*>(tile);
  E* y = static_cast<E*>(to);
  if (stride == 1) {
    store_line(x, y, n);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i * stride] = Write<E, T>::from(x[i]);
  }
}

// Calls f with a value of the C++ type of `dtype`.
template <class F>
auto with_type(DType dtype, F f) {
  switch (dtype) {
    case DType::kBool: return f(bool{});
    case DType::kUInt8: return f(uint8_t{});
    case DType::kInt8: return f(int8_t{});
    case DType::kInt16: return f(int16_t{});
    case DType::kInt32: return f(int32_t{});
    case DType::kInt64: return f(int64_t{});
    case DType::kFloat16: return f(Float16{});
    case DType::kBFloat16: return f(BFloat16{});
    case DType::kFloat32: return f(float{});
    case DType::kFloat64: return f(double{});
    case DType::kComplex64: return f(std::complex<float>{});
    case DType::kComplex128: return f(std::complex<double>{});
  }
  fail(ErrorKind::kType, "dtype: unknown: {}", static_cast<int>(dtype));
}

}  // namespace

TileType tile_type(DType dtype) {
  if (dtype == DType::kFloat64) return TileType::kDouble;
  if (is_complex(dtype)) return dtype == DType::kComplex64 ? TileType::kComplexFloat : TileType::kComplexDouble;
  return is_floating(dtype) ? TileType::kFloat : TileType::kInt64;
}

bool is_tile(DType dtype, TileType type) {
  switch (type) {
    case TileType::kFloat: return dtype == DType::kFloat32;
    case TileType::kDouble: return dtype == DType::kFloat64;
    case TileType::kInt64: return dtype == DType::kInt64;
    case TileType::kBool: return dtype == DType::kBool;
    case TileType::kComplexFloat: return dtype == DType::kComplex64;
    case TileType::kComplexDouble: return dtype == DType::kComplex128;
  }
  return false;
}

int64_t tile_element_size(TileType type) {
  switch (type) {
    case TileType::kBool: return 1;
    case TileType::kFloat: return 4;
    case TileType::kDouble:
    case TileType::kInt64:
    case TileType::kComplexFloat: return 8;
    case TileType::kComplexDouble: return 16;
  }
  return 8;
}

// Complex tiles are read from elements of their own type alone.
LoadFn tile_load(DType from, TileType to) {
  if (to == TileType::kComplexFloat && is_tile(from, to)) return load<std::complex<float>, std::complex<float>>;
  if (to == TileType::kComplexDouble && is_tile(from, to)) return load<std::complex<double>, std::complex<double>>;
  return with_type(from, [to](auto element) -> LoadFn {
    using E = decltype(element);
    switch (to) {
      case TileType::kFloat: return load<E, float>;
      case TileType::kDouble: return load<E, double>;
      case TileType::kInt64: return load<E, int64_t>;
      default: return nullptr;
    }
    return nullptr;
  });
}

StoreFn tile_store(TileType from, DType to) {
  if (from == TileType::kBool) return to == DType::kBool ? raw_store(1) : nullptr;
  return with_type(to, [from](auto element) -> StoreFn {
    using E = decltype(element);
    if (from == TileType::kFloat) return store<float, E>;
    if (from == TileType::kDouble) return store<double, E>;
    if (from == TileType::kComplexFloat) return store<std::complex<float>, E>;
    if (from == TileType::kComplexDouble) return store<std::complex<double>, E>;
    return store<int64_t, E>;
  });
}

LoadFn raw_load(size_t element_size) {
  return with_element_of_size(element_size, [](auto e) -> LoadFn { return load<decltype(e), decltype(e)>; });
}

StoreFn raw_store(size_t element_size) {
  return with_element_of_size(element_size, [](auto e) -> StoreFn { return store<decltype(e), decltype(e)>; });
}

}  // namespace sluice::cpu
