#pragma once
// The state that a sim device and its streams share: memory, injected faults, the host's cores.
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "base/device.h"
#include "base/error.h"

namespace sluice {

// The device's memory: host memory in truth, but tracked, so that a host pointer is told from a device pointer.
// Thread-safe.
class SimMemory {
 public:
  SimMemory(DeviceId device, uint64_t capacity) : device_(device), capacity_(capacity) {}
  ~SimMemory();
  void* allocate(uint64_t bytes);  // throws kMemory
  void deallocate(void* data);
  bool owns(const void* data) const;
  uint64_t capacity() const { return capacity_; }

 private:
  const DeviceId device_;
  const uint64_t capacity_;  // 0: unlimited
  mutable std::shared_mutex mutex_;
  std::map<uintptr_t, uint64_t> blocks_;  // start -> bytes
  uint64_t used_ = 0;
};

// Failures to inject into kernels to come. Thread-safe.
class SimFaults {
 public:
  void add(const std::string& op, int nth, const Status& status);
  // Called once per kernel executed; the failure to give it, or success.
  Status take(const std::string& op);

 private:
  struct Fault {
    std::string op;
    int countdown;
    Status status;
  };
  std::atomic<int> armed_{0};
  std::mutex mutex_;
  std::vector<Fault> faults_;
};

struct SimShared {
  SimShared(DeviceId device, uint64_t capacity) : memory(device, capacity) {}
  SimMemory memory;
  SimFaults faults;
  std::function<void(int)> acquire_cores, release_cores;
};

}  // namespace sluice
