#pragma once
// Chains of steps as one loop of float, in which the next step takes what the last one gives in a register: the most
// frequent ones of rows, such as a difference's exponential. Each step's result is rounded by itself.
#include <span>
#include <string_view>

#include "kernels/cpu/loops/loops.h"

namespace sluice::cpu {

inline constexpr size_t kMostLinks = 3;

// A step. Its first operand is what the last one gives.
struct ChainLink {
  enum class Other : uint8_t { kNone, kEach, kOne };  // its second: an element for each, or one for all
  std::string_view op;
  Other other = Other::kNone;
  bool operator==(const ChainLink&) const = default;
};

// The loop of a chain, null where there is none. It reads the first step's first operand, then the second ones of those
// that have one; `out` may be one of them.
Loop chain_loop(std::span<const ChainLink> links);

}  // namespace sluice::cpu
