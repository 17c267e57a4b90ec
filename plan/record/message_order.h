#pragma once
// The order in which a run handled its messages, and the file that keeps it.
//
// The file: "SLUICEMO", a version, the build that wrote it; then numbers in LEB128. 0: a plan has been loaded (its
// name, its digest, how many kinds of messages it has); 1: the end, and how many messages there were; any other is a
// message plus 2. A message takes 1 to 4 bytes: it is a kind of message, numbered over all plans, and how it was
// handled.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace sluice::plan {

// How a stream handled a message. kMore: it brought one start more than those before it say.
enum class Handled : uint8_t { kDelivered, kCounted, kFiredOnce, kMore };

struct OrderedMessage {
  uint32_t id = 0;
  Handled how = Handled::kDelivered;
  bool operator==(const OrderedMessage&) const = default;
};

// So that a message fits four bytes.
inline constexpr uint32_t kMostMessageIds = (1u << 26) - 1;

struct OrderedPlan {
  std::string name, digest;
  uint32_t ids = 0;     // those of its messages follow those of the plans before it
  size_t messages = 0;  // that came before it
};

struct MessageOrder {
  std::string build;
  std::vector<OrderedPlan> plans;
  std::vector<OrderedMessage> messages;
};

// The SHA-256 of the plan as JSON tells plans apart.
std::string digest_of(const Plan& plan);

// The file in pieces, for one that is written while it grows.
std::string order_head(std::string_view build);
void put_plan(std::string& out, const OrderedPlan& plan);
void put_message(std::string& out, const OrderedMessage& message);
std::string order_tail(uint64_t messages);
std::string order_of(const MessageOrder& order);

// Throws kValue "<file>: byte <n>: <what is wrong>" for a file that is cut, foreign or broken.
MessageOrder read_order(std::string_view bytes, const std::string& file_name);
MessageOrder load_order(const std::string& path);  // also throws kIo

}  // namespace sluice::plan
