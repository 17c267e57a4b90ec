#pragma once
// A point in a CUDA stream's work, reused for many recordings.
#include <memory>

#include "streams/cuda/cuda_context.h"
#include "streams/stream.h"

namespace sluice::cuda {

// Two kinds of failure travel with it: what the host knew when it recorded, and what kernels found, in a pinned word
// that is valid once the event is complete.
class CudaEvent final : public Event {
 public:
  explicit CudaEvent(std::shared_ptr<CudaContext> context);
  ~CudaEvent() override;
  bool complete() const override;
  Status wait() override;

 private:
  friend class CudaStream;
  const std::shared_ptr<CudaContext> context_;
  CUevent event_ = nullptr;
  LateFailure* word_ = nullptr;  // pinned
  bool recorded_ = false;
  bool fallible_ = false;      // of the last recording: the word counts
  Status status_;              // of the last recording
  std::string launched_last_;  // by then, on its stream
};

}  // namespace sluice::cuda
