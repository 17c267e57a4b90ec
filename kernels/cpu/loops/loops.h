#pragma once
// Elementwise functions as loops over contiguous memory, in the few types computed in. Everything else (16-bit floats,
// small integers, strides, broadcasting) is brought into tiles of these types by the elementwise kernel.
#include <cstdint>
#include <span>

#include "base/scalar_ops.h"
#include "kernels/cpu/strides/tiles.h"

namespace sluice::cpu {

// Computes out[i] from in[...][i] for i < n; out may be one of the inputs. Its result is a ScalarError.
using Loop = int (*)(const void* const* in, void* out, int64_t n);

// The loops of an entry of base/scalar. Null: it is not defined for the type.
struct LoopSet {
  const char* op;
  const char* mode;    // as ScalarOp's
  Loop f32 = nullptr;  // float operands (float16 and bfloat16 as well)
  Loop f64 = nullptr;
  Loop i64 = nullptr;  // integers and bool
  Loop c64 = nullptr;  // complex operands, of the forms of kComplexMode
  Loop c128 = nullptr;
  // Loops whose first, or whose second, operand is one element, which goes with all of the other.
  Loop f32_one[2] = {};
  Loop f64_one[2] = {};
  Loop b8 = nullptr;  // of bools as they lie in memory, any byte but 0 being true
};

std::span<const LoopSet> unary_loops();
std::span<const LoopSet> binary_loops();
std::span<const LoopSet> comparison_loops();
std::span<const LoopSet> activation_loops();
std::span<const LoopSet> special_loops();

// Those of an op, null where there are none. The mode is found as by find_scalar_op().
const LoopSet* find_loops(const ScalarOp& op);
// The loop of tiles of a type, null where there is none.
Loop loop_of(const LoopSet& set, TileType tile);
// The one whose operand number `one` is one element. Null: fill a tile with it.
Loop loop_with_one(const LoopSet& set, TileType tile, size_t one);

// in[0] says with which of in[1] and in[2] out is filled, of elements that are so many bytes large.
Loop where_loop(int64_t element_size);
// The tiles that a cast goes through. Integers that become float need not go through int64.
TileType tile_of_cast(DType from, DType to);

}  // namespace sluice::cpu
