#pragma once
// NCCL as a table of its functions, found when the backend is loaded: a machine without it has no collectives between
// GPUs, and values travel through the host.
#include <nccl.h>

#include <string>

namespace sluice::cuda {

// clang-format off
#define SLUICE_NCCL_CALLS(X)                                                                           \
  X(ncclGetVersion) X(ncclGetErrorString) X(ncclGetUniqueId)                                           \
  X(ncclCommInitRankConfig) X(ncclCommGetAsyncError) X(ncclCommAbort)                                  \
  X(ncclGroupStart) X(ncclGroupEnd) X(ncclAllGather) X(ncclSend) X(ncclRecv)
// clang-format on

struct Nccl {
#define SLUICE_NCCL_MEMBER(name) decltype(&::name) name = nullptr;
  SLUICE_NCCL_CALLS(SLUICE_NCCL_MEMBER)
#undef SLUICE_NCCL_MEMBER
};

// The library that SLUICE_NCCL names, else libnccl.so.2. Loaded once and kept. Null when there is none; throws
// kUnsupported when it is too old, or not where SLUICE_NCCL says. Thread-safe.
const Nccl* nccl();

}  // namespace sluice::cuda
