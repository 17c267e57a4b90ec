#pragma once
// The messages that travel between nodes, as small PODs. Within a stream as an Item on its ring; between streams as a
// Cell, which is made once per (edge, slot) when a plan is loaded, so that a push needs neither memory nor room in a
// queue.
#include <cstdint>
#include <functional>

namespace sluice::actors {

class Node;
struct Call;

// kFire: the node has something to do. A token or an ack for a node of the same stream is no message: its receiver
// counts it in the sender's firing, and a firing that it makes possible waits its turn on the ring. Two turns of the
// ring for each would make an act cost half as much again. Acks that make their receiver do more than count (those of
// registers in place, of devices, of feeds) stay messages, since they could nest as deep as the plan is long. The
// firing rule does not depend on when a message is delivered, so this changes no result.
enum class ItemKind : uint8_t { kFire, kReady, kAck, kEnd, kStart, kStop, kCall };

struct Item {
  union {
    Node* node;  // whom it is for
    Call* call;  // of kCall
  };
  uint32_t kind : 8;
  uint32_t port : 24;
  uint32_t slot;

  static Item to(Node* node, ItemKind kind, int port = 0, int slot = 0) {
    Item item;
    item.node = node;
    item.kind = static_cast<uint32_t>(kind);
    item.port = static_cast<uint32_t>(port);
    item.slot = static_cast<uint32_t>(slot);
    return item;
  }
};
inline constexpr int kMaxPorts = 1 << 24;

// A message that crosses streams. At most one use is under way: a slot is not ready again before it was acknowledged.
struct Cell {
  Cell* next = nullptr;
  Item item{};
  // The thread that a message is for has work of its own then, as a rule. So to count it for that thread while it is
  // parked only takes its memory to another core and back.
  bool wakes = false;
};

// A function to run on a stream's thread; deletes itself. The slow door: control messages, reports, set-up.
struct Call {
  Cell cell;
  std::function<void()> run;
};

}  // namespace sluice::actors
