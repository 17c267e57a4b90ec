#pragma once
// Random numbers of a piece of a tensor, as a tile.
#include <cstdint>

#include "kernels/cpu/strides/tiles.h"

namespace sluice::cpu {

// One call of dropout: the attributes of the op, and its state.
struct DropoutCall {
  TileType tile;  // kFloat or kDouble
  const int64_t* state;
  int64_t salt;
  double p;
};
// Applies dropout to n <= kTile elements, of which the first is the tensor's element `begin` in row-major order. `out`
// may be `x`.
void drop_tile(const DropoutCall& call, const void* x, void* out, int64_t begin, int64_t n);

}  // namespace sluice::cpu
