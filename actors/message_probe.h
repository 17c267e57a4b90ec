#pragma once
// Manual stepping can do more with messages than choose their order: it makes one of every token, checks each against
// the protocol, and breaks some on purpose. For tests; streams with threads have none of it.
#include <cstdint>
#include <string>
#include <vector>

#include "actors/message.h"

namespace sluice::actors {

enum class MessageFault : uint8_t {
  kNone,
  kDrop,       // the message is lost
  kDelay,      // many messages wait while others pass; the order of an edge is kept
  kDuplicate,  // it comes twice
  kReorder,    // it comes after the next of its edge
  kForge,      // the ack of a token comes although its reader has not fired
};

// A message that may be delivered next.
struct PendingMessage {
  Item item{};
  int edge = -1;            // of tokens, acks and ends that travel as cells
  uint64_t held_until = 0;  // kDelay, kReorder: in messages delivered
};

// Thread safety: none; used by the thread that steps.
class MessageProbe {
 public:
  // Takes effect when a plan is loaded: also within a stream every token and ack is a message.
  bool every_token = true;
  bool check = true;  // REQUIRES: every_token
  // REQUIRES: every_token. `victim`: kReady, kAck or kEnd; of kForge, kAck. `at`: which of them, counted from 0, or
  // the first after it that can be; of kDelay, the seed of the choice.
  MessageFault fault = MessageFault::kNone;
  ItemKind victim = ItemKind::kReady;
  uint64_t at = 0;

  uint64_t delivered = 0;
  uint64_t seen = 0;                  // messages of the victim's kind
  uint64_t faults = 0;                // made
  int edge = -1;                      // of the last of them
  bool waiting = false;               // kReorder: a message waits for the next of its edge
  std::vector<std::string> breaches;  // found, the first of each run

  // Forgets what it has seen and sets what to do next. REQUIRES: nothing is pending.
  void arm(MessageFault fault, ItemKind victim, uint64_t at);

  // `message` has been sent to the stream whose messages are `pending`.
  void add(std::vector<PendingMessage>& pending, const PendingMessage& message);
  // `message` has been chosen. False: it must not be delivered.
  bool admit(const PendingMessage& message);
  bool held(const PendingMessage& message) const { return message.held_until > delivered; }
};

// Messages of one edge in one direction keep their order; so do calls.
bool same_sequence(const PendingMessage& a, const PendingMessage& b);

}  // namespace sluice::actors
