// all_gather, all_to_all between the GPUs of several ranks. They move bytes alone: sums are kernels like others, in the
// order of ranks, so that their bits do not depend on how NCCL would add up.
#include "kernels/collectives.h"

#include "base/shape.h"
#include "kernels/cuda/families.h"
#include "kernels/cuda/nccl_group.h"
#include "streams/collective/communicator.h"

namespace sluice::cuda {
namespace {

class AllGather final : public PreparedKernel {
 public:
  AllGather(std::shared_ptr<NcclGroup> group, uint64_t bytes) : group_(std::move(group)), bytes_(bytes) {}
  void run(const KernelArgs& args) const override {
    group_->run("all_gather", stream_of(args, "all_gather"), [&](const Nccl& nccl, ncclComm_t comm, CUstream stream) {
      return nccl.ncclAllGather(args.inputs[0], args.outputs[0], bytes_, ncclUint8, comm, stream);
    });
  }

 private:
  const std::shared_ptr<NcclGroup> group_;
  const uint64_t bytes_;
};

class AllToAll final : public PreparedKernel {
 public:
  AllToAll(std::shared_ptr<NcclGroup> group, uint64_t bytes)
      : group_(std::move(group)), part_(bytes / static_cast<uint64_t>(group_->size())) {}
  void run(const KernelArgs& args) const override {
    group_->run("all_to_all", stream_of(args, "all_to_all"), [&](const Nccl& nccl, ncclComm_t comm, CUstream stream) {
      ncclResult_t result = nccl.ncclGroupStart();
      for (int r = 0; r < group_->size() && result == ncclSuccess; ++r) {
        const uint64_t offset = static_cast<uint64_t>(r) * part_;
        result = nccl.ncclSend(static_cast<const char*>(args.inputs[0]) + offset, part_, ncclUint8, r, comm, stream);
        if (result != ncclSuccess && result != ncclInProgress) break;
        result = nccl.ncclRecv(static_cast<char*>(args.outputs[0]) + offset, part_, ncclUint8, r, comm, stream);
        if (result == ncclInProgress) result = ncclSuccess;  // in a group that is always so
      }
      const ncclResult_t ended = nccl.ncclGroupEnd();
      return result == ncclSuccess ? ended : result;
    });
  }

 private:
  const std::shared_ptr<NcclGroup> group_;
  const uint64_t part_;
};

std::unique_ptr<PreparedKernel> prepare(const plan::KernelQuery& query, collective::Communicator& group) {
  const bool gathers = query.op == "all_gather";
  SLUICE_CHECK_KIND(kUnsupported, gathers || query.op == "all_to_all",
                    "{}: no such collective on {}; there are all_gather and all_to_all", query.op, query.device.str());
  check_collective(query, group.size());
  const uint64_t bytes = query.inputs[0].extent_bytes();
  std::shared_ptr<NcclGroup> joined = NcclGroup::of(query.device, group);
  if (gathers) return std::make_unique<AllGather>(std::move(joined), bytes);
  return std::make_unique<AllToAll>(std::move(joined), bytes);
}

}  // namespace

PrepareCollective nccl_collectives() { return nccl() != nullptr ? prepare : nullptr; }

}  // namespace sluice::cuda
