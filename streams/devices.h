#pragma once
// Makes devices by name: those of the core, and those of backends.
#include <cstdint>
#include <functional>
#include <memory>

#include "base/device.h"
#include "streams/stream.h"

namespace sluice {

struct DeviceOptions {
  int cores = 0;              // threads of a compute stream's kernels; 0: machine_cores()
  uint64_t memory_bytes = 0;  // of sim: its capacity; 0: unlimited
  uint64_t pinned_bytes = 0;  // of cuda: most pinned host memory; 0: a quarter of the host's
  // Called around every kernel by devices whose own threads compute on the host's cores (sim), so that an engine can
  // lend them cores. Both or neither; thread-safe; release never throws.
  std::function<void(int cores)> acquire_cores = nullptr;
  std::function<void(int cores)> release_cores = nullptr;
};

// Throws kUnsupported when there is no backend for the kind, or it has no such device.
std::unique_ptr<Device> make_device(const DeviceId& id, const DeviceOptions& options = {});

}  // namespace sluice
