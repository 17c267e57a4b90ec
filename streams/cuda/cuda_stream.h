#pragma once
// An in-order queue of a CUDA device.
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "streams/cuda/cuda_chain.h"
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
  // Compute streams keep a CUDA graph per key.
  std::unique_ptr<Chain> create_chain(const std::string& context) override;
  Status synchronize() override;

  // For kernels, on the stream's thread.
  CudaContext& context() const { return *context_; }
  // For libraries that queue work themselves. REQUIRES: the firing has not failed.
  CUstream handle() const { return stream_; }
  // The port for a kernel that cannot fail.
  FailurePort failure_port() const;
  // The port for a kernel that may fail, and the words in which its failure reads.
  FailurePort failure_port(DescribeFailure describe, const std::string* context);
  // Queue work, or nothing when the firing has failed. Throw what the driver refuses.
  void launch(const Launch& launch);
  // The driver's stream for a library that queues work itself, with the device's context current; null when the firing
  // has failed and nothing is to be queued. Work that the library queues does not see failures that kernels find.
  CUstream library_stream(const std::string* context);
  void copy(void* to, const void* from, uint64_t bytes, const std::string* context);

 private:
  friend class CudaChain;
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
  Status failure_;                    // of the firing, as the host knows it
  std::mutex synchronize_mutex_;      // held while work is recorded: nobody else may queue then
  Recording* recording_ = nullptr;    // that the work queued now is part of, or null
  LateFailure* host_word_ = nullptr;  // of synchronize(), pinned
};

}  // namespace sluice::cuda
