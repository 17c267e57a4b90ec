#pragma once
// Kernels that are watched: each runs on copies of its results and of its workspace, with bytes around them that it
// must leave as they are. So a kernel that writes beyond them is told at once, and harms nobody.
#include <memory>
#include <string>

#include "kernels/kernel.h"

namespace sluice::cpu {

// SLUICE_GUARD is set, and not to 0: all kernels of the host are watched.
bool guards_all_memory();

// `kernel`, which was prepared for `query`, as one whose run() throws kRuntime when it has written beyond an output, or
// beyond its workspace; nothing it has written is then to be seen. Kernels of other devices are given back as they are.
// A result or a variable in place of an input is copied as one with it. It allocates while it runs.
std::shared_ptr<const PreparedKernel> guarded(std::shared_ptr<const PreparedKernel> kernel,
                                              const plan::KernelQuery& query);

// A kernel that can say which of an op's implementations it is, for errors.
class OfImplementation {
 public:
  virtual ~OfImplementation() = default;
  virtual std::string implementation() const = 0;
};

}  // namespace sluice::cpu
