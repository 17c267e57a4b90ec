#pragma once
// Work that a stream repeats as CUDA graphs: one per key, captured when the key comes for the second time.
#include <memory>
#include <string>
#include <vector>

#include "streams/cuda/cuda_context.h"
#include "streams/stream.h"

namespace sluice::cuda {

class CudaStream;

struct Recording {
  std::vector<void*> key;
  bool fallible = false;          // the firing's word may have been set when the work begins; its kernels know
  bool fallible_after = false;    // or when it ends
  std::vector<uint64_t> tickets;  // of its kernels that may fail
  CUgraphExec graph = nullptr;    // none yet
};

// Invariants
//  1. Work that is captured is not executed, and work that is executed first is not captured: the first run of a key
//     loads what kernels need, and a kernel that cannot be launched is told by itself. 2. When the driver refuses to
//     capture, or keys are too many, that is told once, and what has not been captured is queued call by call from then
//     on: all of it, or that of the keys too many.
class CudaChain final : public Chain {
 public:
  CudaChain(CudaStream& stream, std::string context);
  ~CudaChain() override;
  void run(std::span<void* const> key, const std::function<void()>& work) override;

 private:
  static constexpr size_t kMostRecordings = 16;  // slots of registers change together, so there are few
  void remember(std::span<void* const> key, bool fallible);
  void record(Recording& recording, const std::function<void()>& work);
  Status capture(Recording& recording, const std::function<void()>& work);
  void release(Recording& recording);
  void tell(const std::string& why) const;
  void launch(const Recording& recording);

  CudaStream& stream_;
  const std::shared_ptr<CudaContext> device_;
  const std::string context_;
  std::vector<Recording> recordings_;
  bool full_ = false, refused_ = false;
};

}  // namespace sluice::cuda
