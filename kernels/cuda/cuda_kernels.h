#pragma once
// Kernels of CUDA devices.
#include "base/libraries.h"
#include "kernels/kernel.h"
#include "streams/backend.h"
#include "streams/cuda/cuda_stream.h"

namespace sluice::cuda {

// The kernels this build has, by explicit lists. Throws kUnsupported, with none added, where the environment names a
// library that cannot be loaded. REQUIRES: the table has the cpu's.
void add_cuda_kernels(KernelTable& table);
// The libraries that they stand on: NVRTC, and those that may take the place of generated kernels.
std::vector<LibraryVersion> cuda_libraries();

// "copy": between equal layouts the driver's own copies, on any of its streams; between others a generated kernel,
// which runs within the device.
KernelDef copy_kernel();
bool copies_bytes(const plan::KernelQuery& query);  // whether copy_kernel() serves it

// The same as Backend::prepare_collective, by NCCL; null where there is none.
using PrepareCollective = std::unique_ptr<PreparedKernel> (*)(const plan::KernelQuery&, collective::Communicator&);
PrepareCollective nccl_collectives();

// The architecture that programs for a device are compiled for: "sm_90".
std::string architecture(const DeviceId& device);

// The CUDA stream of a run. Throws kUnsupported when it runs elsewhere.
CudaStream& stream_of(const KernelArgs& args, const std::string& op);
// The same of a kernel that works on device memory alone: copy streams are refused.
CudaStream& compute_stream_of(const KernelArgs& args, const std::string& op);

}  // namespace sluice::cuda
