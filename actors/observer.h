#pragma once
// Looks at kernels as they run: each one is finished, and looked at, before the next one of its stream begins.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "plan/plan.h"

namespace sluice::actors {

class StreamExecutor;

// Thread safety: kernels of several streams are told of at once.
class KernelObserver {
 public:
  virtual ~KernelObserver() = default;
  // Whether it looks at what this kernel has written.
  virtual bool wants(const plan::Kernel& kernel, uint64_t step) const = 0;
  // `data`: output `output` of plan kernel `index`, in host memory, laid out as the kernel says; valid until it
  // returns. On the thread of the kernel's stream. An exception of the observer fails the firing.
  virtual void wrote(const plan::Kernel& kernel, int index, int output, uint64_t step, const std::byte* data) = 0;
};
using KernelObservers = std::vector<std::shared_ptr<KernelObserver>>;

// Waits for the kernel, and tells of it. Throws the kernel's own failure, of a device whose failures come late, and
// what an observer throws. On `home`'s thread.
void observe(const KernelObservers& observers, const plan::Kernel& kernel, int index, void* const* outputs,
             uint64_t step, StreamExecutor& home);

}  // namespace sluice::actors
