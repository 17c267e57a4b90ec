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

Status FailureLog::resolve(const LateFailure& failure) const {
  std::lock_guard lock(mutex_);
  const Entry& entry = entries_[failure.ticket % kKept];
  if (entry.ticket != failure.ticket) {
    return {ErrorKind::kRuntime,
            fmt::format("a kernel failed {} launches ago; which one is no longer known", last_ - failure.ticket)};
  }
  return entry.describe(failure.values).with_context(entry.context);
}

}  // namespace sluice::cuda
