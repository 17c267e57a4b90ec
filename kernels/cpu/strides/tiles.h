#pragma once
// Elements of any dtype, any stride, to and from contiguous tiles of the few types computed in.
#include <complex>
#include <cstdint>

#include "base/dtype.h"

namespace sluice::cpu {

inline constexpr int64_t kTile = 512;  // elements

enum class TileType : uint8_t { kFloat, kDouble, kInt64, kBool, kComplexFloat, kComplexDouble };
// float for the floating dtypes up to 32 bits, double, int64 for integers and bool, complex of float and of double.
TileType tile_type(DType dtype);
inline constexpr int64_t kTileBytes = kTile * 16;
int64_t tile_element_size(TileType type);  // bytes
// True when memory of `dtype` is a tile of `type` as it is.
bool is_tile(DType dtype, TileType type);

// Reads n elements `stride` apart (elements; 0 repeats one), as `to`. Writes likewise.
using LoadFn = void (*)(const void* from, int64_t stride, void* tile, int64_t n);
using StoreFn = void (*)(const void* tile, void* to, int64_t stride, int64_t n);
LoadFn tile_load(DType from, TileType to);
StoreFn tile_store(TileType from, DType to);
// The same without conversion, by element size (1, 2, 4, 8, 16).
LoadFn raw_load(size_t element_size);
StoreFn raw_store(size_t element_size);

// An element of 16 bytes, as aligned as its parts are.
struct Bytes16 {
  uint64_t low, high;
};
// Calls `f` with a value of a type of that size, to move elements whatever they are.
template <class F>
auto with_element_of_size(size_t size, F f) {
  switch (size) {
    case 1: return f(uint8_t{});
    case 2: return f(uint16_t{});
    case 4: return f(uint32_t{});
    case 8: return f(uint64_t{});
    default: return f(Bytes16{});
  }
}

}  // namespace sluice::cpu
