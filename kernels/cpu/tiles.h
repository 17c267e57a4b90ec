#pragma once
// Elements of any dtype, any stride, to and from contiguous tiles of the few types computed in.
#include <cstdint>

#include "base/dtype.h"

namespace sluice::cpu {

inline constexpr int64_t kTile = 512;  // elements

enum class TileType : uint8_t { kFloat, kDouble, kInt64, kBool };
// float for the floating dtypes up to 32 bits, double, int64 for integers and bool.
TileType tile_type(DType dtype);
inline constexpr int64_t kTileBytes = kTile * 8;
// True when memory of `dtype` is a tile of `type` as it is.
bool is_tile(DType dtype, TileType type);

// Reads n <= kTile elements `stride` apart (elements; 0 repeats one), as `to`. Writes likewise.
using LoadFn = void (*)(const void* from, int64_t stride, void* tile, int64_t n);
using StoreFn = void (*)(const void* tile, void* to, int64_t stride, int64_t n);
LoadFn tile_load(DType from, TileType to);
StoreFn tile_store(TileType from, DType to);
// The same without conversion, by element size (1, 2, 4, 8).
LoadFn raw_load(size_t element_size);
StoreFn raw_store(size_t element_size);

}  // namespace sluice::cpu
