#include "kernels/cpu/tiles.h"

#include <bit>

#include "base/error.h"
#include "kernels/cpu/vector_math.h"

namespace sluice::cpu {
namespace {

// One element as T, and back. bool is read as non-zero and written as 0 or 1.
template <class T, class E>
SLUICE_INLINE T read(E v) {
  return static_cast<T>(v);
}
template <class T>
SLUICE_INLINE T read(BFloat16 v) {
  return static_cast<T>(from_bits(static_cast<int32_t>(uint32_t{v.bits} << 16)));
}
template <class T>
SLUICE_INLINE T read(Float16 v) {
  return static_cast<T>(static_cast<float>(std::bit_cast<_Float16>(v.bits)));
}

template <class E, class T>
struct Write {
  static SLUICE_INLINE E from(T v) { return static_cast<E>(v); }
};
template <class T>
struct Write<bool, T> {
  static SLUICE_INLINE bool from(T v) { return v != T(0); }
};
template <class T>
struct Write<uint8_t, T> {  // through int64, so that negative values wrap
  static SLUICE_INLINE uint8_t from(T v) { return static_cast<uint8_t>(static_cast<int64_t>(v)); }
};
template <class T>
struct Write<BFloat16, T> {
  static SLUICE_INLINE BFloat16 from(T v) {
    const uint32_t bits = static_cast<uint32_t>(to_bits(static_cast<float>(v)));
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t nan = (bits >> 16) | 0x40u;
    return {static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded)};
  }
};
template <class T>
struct Write<Float16, T> {
  static SLUICE_INLINE Float16 from(T v) { return {std::bit_cast<uint16_t>(static_cast<_Float16>(v))}; }
};

template <class E, class T>
void load(const void* from, int64_t stride, void* tile, int64_t n) {
  const E* x = static_cast<const E*>(from);
  T* y = static_cast<T*>(tile);
  if (stride == 0) {
    const T v = read<T>(*x);
    for (int64_t i = 0; i < n; ++i) y[i] = v;
  } else if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = read<T>(x[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = read<T>(x[i * stride]);
  }
}

template <class T, class E>
void store(const void* tile, void* to, int64_t stride, int64_t n) {
  const T* x = static_cast<const T*>(tile);
  E* y = static_cast<E*>(to);
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = Write<E, T>::from(x[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i * stride] = Write<E, T>::from(x[i]);
  }
}

// 16-bit floats are common enough to be vectorised.
SLUICE_CLONES void load_bfloat16(const void* from, void* tile, int64_t n) {
  const BFloat16* x = static_cast<const BFloat16*>(from);
  float* y = static_cast<float*>(tile);
  for (int64_t i = 0; i < n; ++i) y[i] = read<float>(x[i]);
}
SLUICE_CLONES void store_bfloat16(const void* tile, void* to, int64_t n) {
  const float* x = static_cast<const float*>(tile);
  BFloat16* y = static_cast<BFloat16*>(to);
  for (int64_t i = 0; i < n; ++i) y[i] = Write<BFloat16, float>::from(x[i]);
}
template <>
void load<BFloat16, float>(const void* from, int64_t stride, void* tile, int64_t n) {
  if (stride == 1) return load_bfloat16(from, tile, n);
  const BFloat16* x = static_cast<const BFloat16*>(from);
  float* y = static_cast<float*>(tile);
  for (int64_t i = 0; i < n; ++i) y[i] = read<float>(x[i * stride]);
}
template <>
void store<float, BFloat16>(const void* tile, void* to, int64_t stride, int64_t n) {
  if (stride == 1) return store_bfloat16(tile, to, n);
  const float* x = static_cast<const float*>(tile);
  BFloat16* y = static_cast<BFloat16*>(to);
  for (int64_t i = 0; i < n; ++i) y[i * stride] = Write<BFloat16, float>::from(x[i]);
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
  }
  fail(ErrorKind::kType, "dtype: unknown: {}", static_cast<int>(dtype));
}

}  // namespace

TileType tile_type(DType dtype) {
  if (dtype == DType::kFloat64) return TileType::kDouble;
  return is_floating(dtype) ? TileType::kFloat : TileType::kInt64;
}

bool is_tile(DType dtype, TileType type) {
  switch (type) {
    case TileType::kFloat: return dtype == DType::kFloat32;
    case TileType::kDouble: return dtype == DType::kFloat64;
    case TileType::kInt64: return dtype == DType::kInt64;
    case TileType::kBool: return dtype == DType::kBool;
  }
  return false;
}

LoadFn tile_load(DType from, TileType to) {
  return with_type(from, [to](auto element) -> LoadFn {
    using E = decltype(element);
    switch (to) {
      case TileType::kFloat: return load<E, float>;
      case TileType::kDouble: return load<E, double>;
      case TileType::kInt64: return load<E, int64_t>;
      case TileType::kBool: return nullptr;
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
    return store<int64_t, E>;
  });
}

LoadFn raw_load(size_t element_size) {
  switch (element_size) {
    case 1: return load<uint8_t, uint8_t>;
    case 2: return load<int16_t, int16_t>;
    case 4: return load<int32_t, int32_t>;
    default: return load<int64_t, int64_t>;
  }
}

StoreFn raw_store(size_t element_size) {
  switch (element_size) {
    case 1: return store<int8_t, int8_t>;
    case 2: return store<int16_t, int16_t>;
    case 4: return store<int32_t, int32_t>;
    default: return store<int64_t, int64_t>;
  }
}

}  // namespace sluice::cpu
