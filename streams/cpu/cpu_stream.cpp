#include "streams/cpu/cpu_stream.h"

namespace sluice {

void CpuStream::begin_firing(uint64_t) {
  if (!failed_.load(std::memory_order_relaxed)) return;
  std::lock_guard lock(mutex_);
  failure_ = Status();
  failed_.store(false, std::memory_order_release);
}

void CpuStream::wait(Event& event) {
  if (Status status = event.wait(); !status.ok()) fail(status);
}

void CpuStream::fail(const Status& status) {
  if (status.ok()) return;
  std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = status;
  failed_.store(true, std::memory_order_release);
}

void CpuStream::record(Event&) {
  sluice::fail(ErrorKind::kUnsupported, "stream: {}: events cannot be recorded; work is complete when it returns",
               device_.str());
}

Status CpuStream::synchronize() {
  if (!failed_.load(std::memory_order_acquire)) return {};
  std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace sluice
