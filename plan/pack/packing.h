#pragma once
// Offset packing: buffers that live at different times share bytes of one arena. Pure functions on plain structs.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace sluice::plan {

// A buffer that holds its bytes at times begin <= t < end.
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
  uint64_t bytes = 0;
};

struct Packing {
  std::vector<uint64_t> offsets;  // multiples of the alignment, one per interval
  uint64_t bytes = 0;             // size of the arena, a multiple of the alignment
  uint64_t lower_bound = 0;       // most bytes (each rounded up) alive at once: no packing is smaller
  struct Try {
    const char* way;
    uint64_t bytes;
  };
  std::vector<Try> tries = {};  // in order; the first of the smallest was taken
};

// Tries a fixed set of greedy orders and keeps the smallest result; of many intervals the first within 0.4% of the
// lower bound, unless `every` order is to be tried, then in quadratic time; deterministic; else n log n. Intervals that
// are empty in time or bytes get offset 0. Throws kValue when begin > end or the sizes overflow.
Packing pack(std::span<const Interval> intervals, uint64_t alignment = kAlignment, bool every = false);

// Most bytes alive at once, each rounded up to the alignment.
uint64_t max_live_bytes(std::span<const Interval> intervals, uint64_t alignment = kAlignment);

// Independent of pack(): the first fault ("intervals 3 and 7 overlap: ..."), or "" when the packing is right.
std::string packing_fault(std::span<const Interval> intervals, const Packing& packing, uint64_t alignment = kAlignment);

}  // namespace sluice::plan
