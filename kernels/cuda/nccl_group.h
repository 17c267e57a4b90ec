#pragma once
// One rank's GPU in a group of ranks that exchange device memory by NCCL.
#include <functional>
#include <memory>
#include <string>

#include "streams/cuda/cuda_stream.h"
#include "streams/cuda/nccl.h"

namespace sluice::collective {
class Communicator;
}

namespace sluice::cuda {

// NCCL's kernels wait on the device, where nobody learns that a rank is gone. So the ranks meet on the host before each
// call, which tells who does not come and why; and the host waits for the call, to end it when a rank is gone
// meanwhile.
//
// Thread safety: one call at a time, as its Communicator. Invariant: once a call has failed on the device, NCCL's
// communicator is gone and the job has failed.
class NcclGroup {
 public:
  using Queue = std::function<ncclResult_t(const Nccl& nccl, ncclComm_t comm, CUstream stream)>;

  // The group of `device` in `ranks`. All ranks make theirs in the same order; made once for all kernels of a group.
  static std::shared_ptr<NcclGroup> of(const DeviceId& device, collective::Communicator& ranks);
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  int size() const;
  // All that `queue` queues has run on all ranks when this returns. Throws "<call>: <what>"; a firing that has failed
  // already is a failure of the call for the other ranks.
  void run(const std::string& call, CudaStream& stream, const Queue& queue);

 private:
  NcclGroup(const DeviceId& device, collective::Communicator& ranks);
  void join();
  void check(ncclResult_t result) const;
  // Waits until `done` while nothing has failed.
  void wait_until(const std::function<bool()>& done) const;
  void settle(ncclResult_t result) const;
  void break_off(const std::string& why) noexcept;

  const Nccl& nccl_;
  CudaContext context_;
  collective::Communicator& ranks_;
  ncclComm_t comm_ = nullptr;
  std::unique_ptr<Event> done_;
};

}  // namespace sluice::cuda
