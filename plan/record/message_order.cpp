#include "plan/record/message_order.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/files/file.h"
#include "base/files/sha256.h"
#include "plan/json/json.h"

namespace sluice::plan {
namespace {

constexpr std::string_view kMagic = "SLUICEMO";
constexpr uint64_t kVersion = 1;
constexpr uint64_t kPlan = 0, kEnd = 1, kFirstMessage = 2;
constexpr int kHandledBits = 2;
constexpr size_t kLongestText = 4096;

void put(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void put_text(std::string& out, std::string_view text) {
  text = text.substr(0, kLongestText);
  put(out, text.size());
  out += text;
}

class OrderReader {
 public:
  OrderReader(std::string_view bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  MessageOrder read() {
    if (!bytes_.starts_with(kMagic)) refuse(0, "this is no order of messages; it must begin with SLUICEMO");
    at_ = kMagic.size();
    const size_t version_at = at_;
    if (const uint64_t version = number(); version != kVersion)
      refuse(version_at, fmt::format("version {} of orders of messages; this build reads {}", version, kVersion));
    order_.build = text();
    while (entry()) {
    }
    if (at_ != bytes_.size()) refuse(at_, "there is more behind the end; the file must end here");
    return std::move(order_);
  }

 private:
  [[noreturn]] void refuse(size_t at, const std::string& what) const {
    fail(ErrorKind::kValue, "{}: byte {}: {}", file_, at, what);
  }

  // False at the end.
  bool entry() {
    const size_t at = at_;
    const uint64_t value = number();
    if (value == kPlan) {
      read_plan();
      return true;
    }
    if (value == kEnd) {
      const uint64_t count = number();
      if (count != order_.messages.size())
        refuse(at, fmt::format("{} messages are said to be in it; there are {}", count, order_.messages.size()));
      return false;
    }
    const uint64_t message = value - kFirstMessage;
    if (message >> kHandledBits >= ids_)
      refuse(at, fmt::format("message {} is none of the plans'; they have {}", message >> kHandledBits, ids_));
    const OrderedMessage read = {static_cast<uint32_t>(message >> kHandledBits),
                                 static_cast<Handled>(message & ((1u << kHandledBits) - 1))};
    if (read.how == Handled::kMore && (order_.messages.empty() || order_.messages.back().id != read.id))
      refuse(at, "one start more, but of another message than the one before it");
    order_.messages.push_back(read);
    return true;
  }

  void read_plan() {
    OrderedPlan plan;
    plan.name = text();
    plan.digest = text();
    const size_t at = at_;
    const uint64_t ids = number();
    if (ids > kMostMessageIds - ids_)
      refuse(at, fmt::format("a plan has {} kinds of messages; all may have {}", ids, kMostMessageIds));
    plan.ids = static_cast<uint32_t>(ids);
    plan.messages = order_.messages.size();
    ids_ += plan.ids;
    order_.plans.push_back(std::move(plan));
  }

  uint64_t number() {
    const size_t from = at_;
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      if (at_ == bytes_.size()) refuse(at_, "the file is cut; a whole one must be given");
      const auto next = static_cast<uint8_t>(bytes_[at_++]);
      if (shift == 63 && next > 1) refuse(from, "a number is too large; it must fit 64 bits");
      value |= static_cast<uint64_t>(next & 0x7f) << shift;
      if (next >= 0x80) continue;
      if (next == 0 && shift > 0) refuse(from, "a number is longer than it must be");
      return value;
    }
  }

  std::string text() {
    const size_t at = at_;
    const uint64_t size = number();
    if (size > kLongestText) refuse(at, fmt::format("a text of {} bytes; at most {} may be", size, kLongestText));
    if (size > bytes_.size() - at_) refuse(bytes_.size(), "the file is cut; a whole one must be given");
    const std::string_view text = bytes_.substr(at_, size);
    at_ += size;
    return std::string(text);
  }

  const std::string_view bytes_;
  const std::string& file_;
  size_t at_ = 0;
  uint32_t ids_ = 0;
  MessageOrder order_;
};

}  // namespace

std::string digest_of(const Plan& plan) { return sha256_hex(to_json(plan)); }

std::string order_head(std::string_view build) {
  std::string out(kMagic);
  put(out, kVersion);
  put_text(out, build);
  return out;
}

void put_plan(std::string& out, const OrderedPlan& plan) {
  put(out, kPlan);
  put_text(out, plan.name);
  put_text(out, plan.digest);
  put(out, plan.ids);
}

void put_message(std::string& out, const OrderedMessage& message) {
  put(out, (uint64_t{message.id} << kHandledBits | static_cast<uint64_t>(message.how)) + kFirstMessage);
}

std::string order_tail(uint64_t messages) {
  std::string out;
  put(out, kEnd);
  put(out, messages);
  return out;
}

std::string order_of(const MessageOrder& order) {
  std::string out = order_head(order.build);
  size_t next = 0;
  for (size_t i = 0; i <= order.messages.size(); ++i) {
    for (; next < order.plans.size() && order.plans[next].messages == i; ++next) put_plan(out, order.plans[next]);
    if (i < order.messages.size()) put_message(out, order.messages[i]);
  }
  return out + order_tail(order.messages.size());
}

MessageOrder read_order(std::string_view bytes, const std::string& file_name) {
  return OrderReader(bytes, file_name).read();
}

MessageOrder load_order(const std::string& path) { return read_order(read_file(path), path); }

}  // namespace sluice::plan
