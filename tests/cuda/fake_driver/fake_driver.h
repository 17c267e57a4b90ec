#pragma once
// A CUDA driver without a GPU: libfake_cuda.so has the functions that streams/cuda/driver.h asks for, and these
// controls.
//
// Work is queued and executed late, by the threads that wait for it and now and then by those that queue more, in an
// order chosen by a seed among what streams and events allow. Kernels are functions of the host. Device memory has
// addresses that the host cannot touch; a kernel gets it through shadow().
//
// A fault of the caller is a violation, told at the end of the process, which then exits with 86:
//  - two accesses to overlapping memory, one of them a write, on streams of which neither waits for the other (that the
//    host has waited counts, whichever thread it was);
//  - accesses to memory that is not allocated or not the device's; freeing what is in use, or twice;
//  - handles that were destroyed, and calls with another context current;
//  - calls on a stream that another thread captures.
#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#define FAKE_CUDA_API __attribute__((visibility("default")))

namespace fake_cuda {

struct Access {
  const void* data = nullptr;
  uint64_t bytes = 0;
  bool writes = false;
};

// A kernel: what cuLaunchKernel takes as CUfunction. Outlives its launches.
struct Function {
  std::string name;
  std::vector<size_t> param_bytes;
  std::function<void(void** params)> run;
  std::function<void(void** params, std::vector<Access>& accesses)> accesses;
};
inline CUfunction handle_of(Function& function) { return reinterpret_cast<CUfunction>(&function); }

// The place at which the host finds what a kernel sees at `data`; host memory is itself.
FAKE_CUDA_API void* shadow(const void* data);

// The order of what is executed from now on.
FAKE_CUDA_API void seed(uint64_t seed);
// Nothing is executed but by who waits for it.
FAKE_CUDA_API void set_lazy(bool lazy);
// The nth call of `function` ("cuMemAlloc_v2", as the driver exports it) from now on fails.
FAKE_CUDA_API void fail_call(const std::string& function, int nth, CUresult result);
// How many of these are still to come.
FAKE_CUDA_API int calls_to_fail();
// The nth kernel executed from now on breaks its context: every later call on that device returns `result`.
FAKE_CUDA_API void break_kernel(int nth, CUresult result);
// The nodes of the machine (NUMA). Devices are attached to one, the first to that of `nodes[0]`; a device that none is
// said for has none. A thread's memory lies on the node that it prefers, and without a wish on node 0.
FAKE_CUDA_API void set_nodes(const std::vector<int>& nodes);
// get_mempolicy(2) and set_mempolicy(2) of that machine, for the calling thread. With no nodes they refuse, and where
// refuse_policies() says so, as in a container that may not ask.
FAKE_CUDA_API bool get_policy(int* mode, unsigned long* nodes, unsigned long bits);
FAKE_CUDA_API bool set_policy(int mode, const unsigned long* nodes, unsigned long bits);
FAKE_CUDA_API void refuse_policies(bool refuse);
FAKE_CUDA_API int node_of(const void* pinned);  // on which pinned memory lies; -1: it is not pinned
// As a new process would: forgets what broke. REQUIRES: nothing of the device is in use.
FAKE_CUDA_API void repair();

struct Counts {
  uint64_t kernels = 0, copies = 0, pageable_copies = 0, waits = 0, executed_late = 0;
  uint64_t large_copies = 0;                  // of 1,024 bytes or more, which no word of a failure has
  uint64_t launches = 0, graph_launches = 0;  // calls that launch kernels: one by one or as graphs; the latter
  uint64_t streams = 0, events = 0, graphs = 0, device_bytes = 0, pinned_blocks = 0, contexts = 0;  // alive
};
FAKE_CUDA_API Counts counts();
// Returns the violations so far and forgets them, so that a test may expect them.
FAKE_CUDA_API std::vector<std::string> take_violations();

}  // namespace fake_cuda
