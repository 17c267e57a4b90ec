#pragma once
// A search for a smaller packing than greedy orders find, bounded in steps, not in time: a busy machine finds the same.
#include "plan/pack/packing.h"

namespace sluice::plan {

// A few seconds.
constexpr uint64_t kPackingSteps = 2'000'000'000;

// pack() in every way, then depth first over the orders in which intervals can come to lie, from the lowest offset up,
// for arenas of the lower bound and little above, until one is found or so many steps are taken. For more than 2,000
// intervals it is pack() alone. Throws what pack() throws.
Packing search_packing(std::span<const Interval> intervals, uint64_t steps = kPackingSteps,
                       uint64_t alignment = kAlignment);

}  // namespace sluice::plan
