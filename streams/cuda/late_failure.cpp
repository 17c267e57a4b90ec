#include "streams/cuda/late_failure.h"

namespace sluice::cuda {

FailureLog::FailureLog() : entries_(kKept) {
  for (Entry& entry : entries_) entry.context.reserve(128);
}

uint64_t FailureLog::note(DescribeFailure describe, const std::string* context) {
  std::lock_guard lock(mutex_);
  Entry& entry = entries_[++last_ % kKept];
  entry.ticket = last_;
  entry.describe = describe;
  if (context != nullptr) {
    entry.context.assign(*context);
  } else {
    entry.context.clear();
  }
  return last_;
}

uint64_t FailureLog::hold(DescribeFailure describe, const std::string* context) {
  std::lock_guard lock(mutex_);
  const uint64_t ticket = ++last_ | kHeld;
  held_[ticket] = {ticket, describe, context != nullptr ? *context : std::string()};
  return ticket;
}

void FailureLog::release(uint64_t ticket) {
  std::lock_guard lock(mutex_);
  held_.erase(ticket);
}

Status FailureLog::resolve(const LateFailure& failure) const {
  const uint64_t ticket = failure.ticket & ~kMoved;
  std::lock_guard lock(mutex_);
  const auto held = held_.find(ticket);
  const Entry& entry = held != held_.end() ? held->second : entries_[ticket % kKept];
  if (entry.ticket == ticket) return entry.describe(failure.values).with_context(entry.context);
  if ((ticket & kHeld) != 0) return {ErrorKind::kRuntime, "a kernel of a plan that is gone has failed"};
  return {ErrorKind::kRuntime,
          fmt::format("a kernel failed {} launches ago; which one is no longer known", last_ - ticket)};
}

}  // namespace sluice::cuda
