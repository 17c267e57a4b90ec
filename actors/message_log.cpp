#include "actors/message_log.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/log.h"

namespace sluice::actors {
namespace {

constexpr size_t kBuffer = 65536;

}  // namespace

MessageLog::MessageLog(Options options) : options_(std::move(options)) {
  if (!options_.replay.empty()) {
    order_ = plan::load_order(options_.replay);
    SLUICE_CHECK_KIND(kValue, order_->build == options_.build,
                      "replay: {}: recorded by '{}'; this build is '{}', and only the same build can replay it",
                      options_.replay, order_->build, options_.build);
  }
  if (options_.record.empty()) return;
  const MutexLock lock(mutex_);
  file_ = std::fopen(options_.record.c_str(), "wb");
  SLUICE_CHECK_KIND(kIo, file_ != nullptr, "record: {}: cannot be written: {}", options_.record, std::strerror(errno));
  buffer_ = plan::order_head(options_.build);
  buffer_.reserve(2 * kBuffer);
}

MessageLog::~MessageLog() {
  const MutexLock lock(mutex_);
  if (file_ == nullptr) return;
  buffer_ += plan::order_tail(messages_);
  write(true);
  if (file_ != nullptr && std::fclose(file_) != 0)
    log(LogLevel::kWarn, LogArea::kActors, "record: {}: cannot be written: {}", options_.record, std::strerror(errno));
}

// A disk that is full ends the recording, not the run.
void MessageLog::write(bool all) {
  if (file_ == nullptr || (!all && buffer_.size() < kBuffer)) return;
  if (std::fwrite(buffer_.data(), 1, buffer_.size(), file_) != buffer_.size()) {
    log(LogLevel::kWarn, LogArea::kActors, "record: {}: cannot be written: {}; the recording ends here",
        options_.record, std::strerror(errno));
    std::fclose(file_);
    file_ = nullptr;
  }
  buffer_.clear();
}

uint32_t MessageLog::add_plan(const plan::Plan& plan, uint64_t ids) {
  const std::string digest = plan::digest_of(plan);
  const MutexLock lock(mutex_);
  SLUICE_CHECK_KIND(kUnsupported, ids <= plan::kMostMessageIds - ids_,
                    "record: plan '{}' has {} kinds of messages; all plans may have {}", plan.name, ids,
                    plan::kMostMessageIds);
  if (order_.has_value()) {
    SLUICE_CHECK_KIND(kValue, plans_ < order_->plans.size(),
                      "replay: {}: plan '{}' is loaded; the run that was recorded loaded only {} plans",
                      options_.replay, plan.name, order_->plans.size());
    const plan::OrderedPlan& known = order_->plans[plans_];
    SLUICE_CHECK_KIND(kValue, known.digest == digest && known.ids == ids,
                      "replay: {}: plan '{}' (digest {}) is loaded; it was recorded with plan '{}' (digest {})",
                      options_.replay, plan.name, digest.substr(0, 16), known.name, known.digest.substr(0, 16));
  }
  ++plans_;
  if (file_ != nullptr) plan::put_plan(buffer_, {plan.name, digest, static_cast<uint32_t>(ids), 0});
  const uint32_t first = ids_;
  ids_ += static_cast<uint32_t>(ids);
  return first;
}

void MessageLog::record(uint32_t id, plan::Handled how, uint64_t starts) {
  const MutexLock lock(mutex_);
  if (file_ == nullptr) return;
  plan::put_message(buffer_, {id, how});
  for (uint64_t i = 1; i < starts; ++i) plan::put_message(buffer_, {id, plan::Handled::kMore});
  messages_ += starts;
  write(false);
}

std::optional<MessageLog::Next> MessageLog::next() const {
  if (left_ || at_ == order_->messages.size()) return std::nullopt;
  const plan::OrderedMessage& message = order_->messages[at_];
  Next next{message.id, message.how, 1};
  for (size_t i = at_ + 1; i < order_->messages.size() && order_->messages[i].how == plan::Handled::kMore; ++i)
    ++next.starts;
  return next;
}

std::string MessageLog::where() const { return fmt::format("message {} of {}", at_ + 1, order_->messages.size()); }

void MessageLog::leave(const std::string& why) {
  left_ = true;
  const std::string text = fmt::format("replay: {}: {}", options_.replay, why);
  if (!ending_) fail(ErrorKind::kValue, "{}", text);
  log(LogLevel::kWarn, LogArea::kActors, "{}", text);
}

}  // namespace sluice::actors
