#include "actors/message_probe.h"

#include <algorithm>
#include <limits>

#include "actors/node.h"
#include "actors/protocol.h"

namespace sluice::actors {
namespace {

constexpr uint64_t kForever = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kLongestDelay = 64;

ItemKind kind_of(const PendingMessage& message) { return static_cast<ItemKind>(message.item.kind); }

// A number for each of a kind, that `seed` decides.
uint64_t draw(uint64_t seed, uint64_t number) {
  uint64_t x = (seed + 1) * 0x9E3779B97F4A7C15ull ^ (number + 1) * 0xD1B54A32D192ED03ull;
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93ull;
  return x ^ (x >> 32);
}

}  // namespace

bool same_sequence(const PendingMessage& a, const PendingMessage& b) {
  const auto sequence = [](const PendingMessage& message) {
    const ItemKind kind = kind_of(message);
    if (kind == ItemKind::kEnd) return ItemKind::kReady;
    return kind == ItemKind::kStop ? ItemKind::kStart : kind;
  };
  if (sequence(a) != sequence(b)) return false;
  return sequence(a) == ItemKind::kCall ||
         (a.item.node == b.item.node && a.item.port == b.item.port && a.edge == b.edge);
}

void MessageProbe::arm(MessageFault new_fault, ItemKind new_victim, uint64_t new_at) {
  fault = new_fault;
  victim = new_victim;
  at = new_at;
  delivered = seen = faults = 0;
  waiting = false;
  breaches.clear();
}

void MessageProbe::add(std::vector<PendingMessage>& pending, const PendingMessage& message) {
  if (fault == MessageFault::kReorder) {
    const auto before = std::find_if(pending.begin(), pending.end(), [&](const PendingMessage& other) {
      return other.held_until == kForever && same_sequence(other, message);
    });
    if (before != pending.end()) {
      before->held_until = 0;
      waiting = false;
      ++faults;
      edge = message.edge;
      pending.insert(before, message);
      return;
    }
  }
  pending.push_back(message);
  // A forged ack takes the moment at which its token was sent.
  const bool forges = fault == MessageFault::kForge;
  if (message.edge < 0 || kind_of(message) != (forges ? ItemKind::kReady : victim)) return;
  const uint64_t number = seen++;
  if (fault == MessageFault::kDelay) {
    const uint64_t drawn = draw(at, number);
    if (drawn % 3 != 0) return;
    pending.back().held_until = delivered + 1 + drawn / 3 % kLongestDelay;
    ++faults;
    return;
  }
  if (fault == MessageFault::kNone || faults > 0 || number < at) return;
  switch (fault) {
    case MessageFault::kNone:
    case MessageFault::kDelay: return;
    case MessageFault::kDrop: pending.pop_back(); break;
    case MessageFault::kDuplicate: pending.push_back(message); break;
    case MessageFault::kForge: message.item.node->forge_ack(message.edge, static_cast<int>(message.item.slot)); break;
    case MessageFault::kReorder: {
      if (waiting) return;
      waiting = true;
      pending.back().held_until = kForever;
      return;
    }
  }
  ++faults;
  edge = message.edge;
}

bool MessageProbe::admit(const PendingMessage& message) {
  ++delivered;
  if (message.held_until == kForever) waiting = false;  // nothing else could be delivered: the next may be reordered
  if (message.edge < 0) return true;
  Protocol* const protocol = message.item.node->protocol();
  return protocol == nullptr || protocol->admit(message);
}

}  // namespace sluice::actors
