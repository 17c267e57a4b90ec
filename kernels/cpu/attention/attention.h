#pragma once
// The arguments of the loops of attention: sizes, strides, scratch.
#include <cstdint>

#include "kernels/cpu/support/support.h"

namespace sluice::cpu {

inline constexpr int64_t kRowTileBytes = 256;  // of a tile's row of scores: one score for each query row
inline constexpr int64_t kKeyTile = 96;        // keys of a tile
inline constexpr int64_t kFewRows = 6;         // at most

// Strides of (batch, heads, rows, columns).
struct MatrixPlaces {
  int64_t batch = 0, head = 0, row = 0, col = 0;
  int64_t at(int64_t n, int64_t h, int64_t r, int64_t c = 0) const { return n * batch + h * head + r * row + c * col; }
};

enum class MaskKind : uint8_t { kNone, kBool, kOwn, kCompute };  // of the operands' dtype, or that computed in

// Offsets in a thread's scratch, and its size.
struct AttentionScratch {
  uint64_t q_lanes, q_rows, grad_lanes, grad_rows, out_lanes, scores, d_scores, kept, keys, values, wide, sums, d_keys,
      d_values, bytes;
};

struct AttentionShape {
  int64_t batch = 0, heads = 0, own_heads = 0;  // own_heads: of keys and values
  int64_t rows = 0, keys = 0, width = 0, value_width = 0;
  MatrixPlaces q, k, v, result, grad, mask, dq, dk, dv;
  MaskKind mask_kind = MaskKind::kNone;
  bool causal = false;
  bool few = false;  // forward of so few query rows that most lanes would be empty: row by row
  double scale = 1, dropout_p = 0;
  int64_t salt = 0;
  // Backward: ranges of keys that are summed over apart, whose parts of dq are added up afterwards. Given by the
  // shape, so that results do not depend on the number of threads.
  int64_t parts = 1;
  int64_t part_keys = 0;  // of each but the last; whole tiles
  AttentionScratch scratch = {};
  uint64_t dq_parts = 0;  // their offset behind all threads' scratch
  int threads = 1;
};

struct AttentionPointers {
  const void *q, *k, *v, *mask, *state, *result, *lse, *grad, *grad_lse;
  void *out, *out_lse, *dq, *dk, *dv, *workspace;
};
using AttentionFn = void (*)(const AttentionShape&, const AttentionPointers&);

}  // namespace sluice::cpu
