#pragma once
// The state that a CUDA device and its streams share: the driver's context, whether it is poisoned, pools, memory.
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "base/device.h"
#include "base/error.h"
#include "streams/cuda/driver.h"
#include "streams/cuda/late_failure.h"

namespace sluice::cuda {

// Thread safety: everything, from any thread.
// Invariant: once poisoned() has failed, it fails with the same error for ever; the process and other devices go on.
class CudaContext {
 public:
  // Throws kUnsupported when the driver has no such device. `pinned_bytes`: most pinned memory; 0: a quarter of the
  // host's.
  CudaContext(DeviceId id, const Driver& driver, uint64_t pinned_bytes);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  const DeviceId id;
  const Driver& driver;
  FailureLog late_failures;

  const std::string& name() const { return name_; }
  uint64_t memory_bytes() const { return memory_bytes_; }

  // Makes the device's context the calling thread's. For threads that serve a stream.
  void make_current() const;

  // The error of a failed driver call. An error that leaves the context unusable poisons it; `launched_last` says what
  // may have caused it. Success for CUDA_SUCCESS.
  Status status_of(CUresult result, const char* call, const std::string& launched_last = {});
  void check(CUresult result, const char* call) { status_of(result, call).throw_if_error(); }
  Status poisoned() const;

  // Device memory, known by address. Throw kMemory.
  void* allocate(uint64_t bytes);
  void deallocate(void* data);
  bool owns(const void* data) const;
  // Copies from host memory; over, for every stream, when it returns.
  void write(void* data, const void* host, uint64_t bytes);
  // Pinned host memory, within its quota.
  void* allocate_pinned(uint64_t bytes);
  void deallocate_pinned(void* data, uint64_t bytes);

  // Events without timing, reused; and pinned words for their failures.
  CUevent take_event();
  void give_event(CUevent event);
  LateFailure* take_word();
  void give_word(LateFailure* word);
  // The function `entry` of the module `image`, which is loaded once per `owner` and kept with it.
  CUfunction function(const std::shared_ptr<const void>& owner, const void* image, const char* entry);
  // The kernel (LateFailure* to, const LateFailure* from): the first failure of the two, in `to`.
  CUfunction merge_failures();

 private:
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  std::string name_;
  uint64_t memory_bytes_ = 0, pinned_limit_ = 0;

  std::atomic<bool> is_poisoned_{false};
  mutable std::mutex poison_mutex_;
  Status poison_;

  mutable std::shared_mutex memory_mutex_;
  std::map<uintptr_t, uint64_t> blocks_;  // start -> bytes
  uint64_t pinned_bytes_ = 0;

  std::mutex pool_mutex_;
  std::vector<CUevent> events_;
  std::vector<LateFailure*> words_;
  std::vector<void*> word_pages_;
  std::map<std::shared_ptr<const void>, CUmodule> modules_;
  CUfunction merge_ = nullptr;
};

// Makes a context current for a scope, on a thread that may have another.
class CurrentContext {
 public:
  explicit CurrentContext(const CudaContext& context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const Driver& driver_;
  CUcontext before_ = nullptr;
};

}  // namespace sluice::cuda
