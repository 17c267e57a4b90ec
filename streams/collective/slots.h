#pragma once
// Slots, taken apart; and queues by slot.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "streams/collective/links.h"

namespace sluice::collective {

// The oldest of a slot, or the end.
template <class T>
auto first_of(std::vector<T>& queue, Slot slot) {
  return std::find_if(queue.begin(), queue.end(), [slot](const T& entry) {
    if constexpr (std::is_pointer_v<T>)
      return entry->slot == slot;
    else
      return entry.slot == slot;
  });
}

// A slot without what tells apart the transfers of one call.
constexpr Slot call_of(Slot slot) { return slot & ~0xffull; }
constexpr uint32_t number_of(Slot slot) { return static_cast<uint32_t>(slot >> 8); }
constexpr bool point_to_point(Slot slot) { return (slot & kPointToPoint) != 0; }
// Numbers go round.
constexpr bool before(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; }

}  // namespace sluice::collective
