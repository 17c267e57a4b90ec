#pragma once
// Regions of POSIX shared memory that clients of this machine have registered. Bytes are copied by read and write
// calls, never through a mapping, so a client that cuts its region off costs an error and not the process.
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "inference.pb.h"
#include "serving/core/buffers.h"
#include "serving/core/request.h"

namespace sluice::serving {

// The error that answers every call about CUDA's shared memory.
Error no_cuda_memory();

// Thread-safe. Errors name regions as the client does, never the system's paths.
class SharedMemory {
 public:
  // `prefix`: with which keys must begin, so that a client reaches no shared memory of other programs.
  SharedMemory(bool allowed, std::string prefix) : allowed_(allowed), prefix_(std::move(prefix)) {}

  // "" name: all. Throws kNotFound.
  inference::SystemSharedMemoryStatusResponse status(const std::string& name) const;
  // Throws kForbidden, kInvalidArgument, kAlreadyExists, kNotFound.
  void add(const inference::SystemSharedMemoryRegisterRequest& request);
  void remove(const std::string& name);  // "": all; nothing where there is no such

  // A copy of the bytes, at a multiple of 64 bytes, which counts in `share`. Throws kNotFound, kInvalidArgument, and
  // what the share does.
  std::shared_ptr<void> read(const SharedRegion& region, BufferPool& buffers, const MemoryPtr& share) const;
  // Throws the same, and kInvalidArgument where `bytes` do not fit into the part that was named.
  void write(const SharedRegion& region, const void* data, size_t bytes) const;

 private:
  struct Region;
  std::shared_ptr<const Region> find(const SharedRegion& region) const;
  void check_allowed() const;

  const bool allowed_;
  const std::string prefix_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Region>> regions_;
};

}  // namespace sluice::serving
