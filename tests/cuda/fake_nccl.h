#pragma once
// NCCL without a GPU: libfake_nccl.so has the functions that streams/cuda/nccl.h asks for, for ranks that are threads
// of one process on the fake driver, and these controls. Data really moves, when all ranks' calls are executed; a call
// of which one rank's is missing stays on its stream until its communicator is aborted, as NCCL's does.
#include <nccl.h>

#include <string>

#define FAKE_NCCL_API __attribute__((visibility("default")))

namespace fake_nccl {

// The nth call of `function` from now on, by any rank, fails.
FAKE_NCCL_API void fail_call(const std::string& function, int nth, ncclResult_t result);
// From now on calls of `rank` never come; -1: all do.
FAKE_NCCL_API void lose(int rank);

struct Counts {
  int communicators = 0;           // alive
  int gathers = 0, exchanges = 0;  // of all ranks, that have moved data
};
FAKE_NCCL_API Counts counts();

}  // namespace fake_nccl
