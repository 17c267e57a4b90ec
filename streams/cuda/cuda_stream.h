#pragma once
// An in-order queue of a CUDA device.
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "streams/cuda/cuda_event.h"
#include "streams/stream.h"

namespace sluice::cuda {

struct Launch {
  CUfunction function = nullptr;
  unsigned blocks = 1, threads = 1, shared_bytes = 0;
  void** params = nullptr;               // copied before launch() returns
  const std::string* context = nullptr;  // of what is told when the device fails; outlives the work
};

// Thread safety: one host thread queues work; synchronize() may be called from any thread.
// Invariants
//  1. Once the host knows that the firing has failed, nothing more of it is queued but waits and recordings.
//  2. word_ is zero, or the first failure that kernels of this firing found or waited for; while !fallible_, nothing of
//     this firing touches it.
class CudaStream final : public Stream {
 public:
  CudaStream(std::shared_ptr<CudaContext> context, plan::StreamKind kind);
  ~CudaStream() override;  // waits for what is queued
  DeviceId device() const override { return context_->id; }
  plan::StreamKind kind() const override { return kind_; }
  bool asynchronous() const override { return true; }
  std::unique_ptr<Event> create_event() override;
  void begin_firing(uint64_t step) override;
  // Events of CUDA devices are waited for on the device, others by the calling thread.
  void wait(Event& event) override;
  void fail(const Status& status) override;
  void record(Event& event) override;
  Status synchronize() override;

  // For kernels, on the stream's thread.
  CudaContext& context() const { return *context_; }
  // What a kernel that cannot fail is to be told.
  FailurePort failure_port() const;
  // What a kernel is to be told that may fail, and how its failure reads.
  FailurePort failure_port(DescribeFailure describe, const std::string* context);
  // Queue work, or nothing when the firing has failed. Throw what the driver refuses.
  void launch(const Launch& launch);
  // The driver's stream for a library that queues work itself, with the device's context current; null when the firing
  // has failed and nothing is to be queued. What the library queues does not see failures that kernels find.
  CUstream library_stream(const std::string* context);
  void copy(void* to, const void* from, uint64_t bytes, const std::string* context);

 private:
  bool host_failed() const { return failed_.load(std::memory_order_relaxed); }
  void note(CUresult result, const char* call);  // a failed call fails the firing
  void check(CUresult result, const char* call, const std::string* context);
  void merge(const LateFailure* word);

  const std::shared_ptr<CudaContext> context_;
  const plan::StreamKind kind_;
  CUstream stream_ = nullptr;
  LateFailure* word_ = nullptr;        // of the firing, in device memory
  std::atomic<bool> fallible_{false};  // word_ may be set
  std::atomic<bool> failed_{false};    // whether failure_ is set; spares the lock on the good path
  std::string last_context_;           // of the last launch
  mutable std::mutex failure_mutex_;
  Status failure_;  // of the firing, as the host knows it
  std::mutex synchronize_mutex_;
  LateFailure* host_word_ = nullptr;  // of synchronize(), pinned
};

}  // namespace sluice::cuda
