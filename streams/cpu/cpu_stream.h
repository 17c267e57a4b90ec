#pragma once
// The stream of the host's cores: kernels run inline, on the thread that launches them.
#include <atomic>
#include <mutex>

#include "streams/stream.h"

namespace sluice {

class CpuStream final : public Stream {
 public:
  CpuStream(DeviceId device, plan::StreamKind kind) : device_(device), kind_(kind) {}
  DeviceId device() const override { return device_; }
  plan::StreamKind kind() const override { return kind_; }
  bool asynchronous() const override { return false; }
  std::unique_ptr<Event> create_event() override { return nullptr; }
  void begin_firing(uint64_t step) override;
  // Blocks the calling thread: another device's event is a host wait here.
  void wait(Event& event) override;
  void fail(const Status& status) override;
  // Throws kUnsupported: work is complete when it returns, so there is nothing to record.
  void record(Event& event) override;
  Status synchronize() override;

 private:
  const DeviceId device_;
  const plan::StreamKind kind_;
  std::atomic<bool> failed_{false};  // whether failure_ is set; spares the lock on the good path
  std::mutex mutex_;
  Status failure_;
};

}  // namespace sluice
