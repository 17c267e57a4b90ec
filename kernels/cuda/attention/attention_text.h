#pragma once
// The kernels of attention as text. In front of them stand T (of the operands), C (of sums), the sizes kHeads, kGroup,
// kRows, kKeys, kE (width of query and key), kV (of value), a function NAME_at(batch, head, row, column) for each
// operand, score(), given(), all_take_part() and kept(); ahead of a body, q, k, v, mask and state, and for gradients
// grad, lse and delta.
#include <string>

namespace sluice::cuda {

// The result of a block: a tile of queries' results, their gradients, or those of a tile of keys and values.
enum class AttentionPart { kResult, kQueries, kKeys };

// Computes by products of tiles through shared memory, for any dtype, width and stride: 16 x 16 threads make kEach x
// kEach numbers each of a tile of kTile x kTile; a block makes kWide tiles of columns, one of kParts.
extern const char* const kTileFunctions;
std::string tiled_attention(AttentionPart part);

// Computes by tensor cores, for operands of 16 bits (`halves`) or of float32 that are rounded to TF32: a warp has 16 of
// a block's 128 rows in registers (kOwners of heads), and all warps read tiles of kOther rows of the other side from
// shared memory. kMakesKeys and kMakesValues: of which gradients; kPackedNAME: are rows whole packs of 16 bytes?
std::string warp_functions(bool halves);
std::string warp_attention(AttentionPart part);

}  // namespace sluice::cuda
