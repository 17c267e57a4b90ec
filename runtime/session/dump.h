#pragma once
// Writes what kernels compute to files, to be looked at or compared with another run (plan-viz compare).
#include <fstream>
#include <string>
#include <vector>

#include "actors/numerics.h"
#include "base/mutex.h"

namespace sluice {

// The values to write, as a text: "ops=conv*,steps=2-3,tensors,dir=out/dump". Parts may be left out.
struct DumpOptions {
  std::vector<std::string> ops;  // shell patterns of ops or kernels; none: all
  uint64_t first_step = 0, last_step = UINT64_MAX;
  bool tensors = false;  // the outputs themselves, not only their statistics
  std::string directory = "dump";
};
// Throws kValue for a text that says something else.
DumpOptions parse_dump(const std::string& text);

// `directory` gets stats.csv, a line per output of a kernel and step, and, of tensors, a .npy file for each.
// Thread safety: KernelObserver's.
class Dump : public actors::KernelObserver {
 public:
  // Throws kIo where the directory cannot be written to.
  explicit Dump(DumpOptions options);
  bool wants(const plan::Kernel& kernel, uint64_t step) const override;
  void wrote(const plan::Kernel& kernel, int index, int output, uint64_t step, const std::byte* data) override;

 private:
  const DumpOptions options_;
  Mutex mutex_;
  std::ofstream stats_ SLUICE_GUARDED_BY(mutex_);
};

}  // namespace sluice
