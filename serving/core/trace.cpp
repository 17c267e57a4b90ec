#include "serving/core/trace.h"

#include <chrono>
#include <utility>

namespace sluice::serving {

RequestTrace::RequestTrace(uint64_t id, Transport transport, Finish finish)
    : id_(id), transport_(transport), finish_(std::move(finish)) {}

RequestTrace::~RequestTrace() {
  stamp(Stamp::kRequestEnd);
  finish_(*this);
}

int64_t RequestTrace::at_ns(Stamp stamp) const {
  const Clock::duration at(at_[static_cast<size_t>(stamp)].load(std::memory_order_relaxed));
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at).count();
}

}  // namespace sluice::serving
