#include "serving/core/trace.h"

#include <chrono>
#include <utility>

namespace sluice::serving {

RequestTrace::RequestTrace(uint64_t id, Transport transport, Finish finish)
    : id_(id), transport_(transport), finish_(std::move(finish)) {}

std::shared_ptr<RequestTrace> RequestTrace::make(uint64_t id, Transport transport, Finish finish) {
  const auto record = std::make_shared<RequestTrace>(id, transport, std::move(finish));
  return {record.get(), [record](RequestTrace* trace) { trace->stamp(Stamp::kRequestEnd); }};
}

RequestTrace::~RequestTrace() {
  if (at_ns(Stamp::kRequestEnd) == 0) stamp(Stamp::kRequestEnd);
  finish_(*this);
}

void RequestTrace::add(std::shared_ptr<const StepTrace> step) {
  const std::lock_guard lock(mutex_);
  steps_.push_back(std::move(step));
}

std::vector<std::shared_ptr<const StepTrace>> RequestTrace::steps() const {
  const std::lock_guard lock(mutex_);
  return steps_;
}

int64_t RequestTrace::at_ns(Stamp stamp) const {
  const Clock::duration at(at_[static_cast<size_t>(stamp)].load(std::memory_order_relaxed));
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at).count();
}

}  // namespace sluice::serving
