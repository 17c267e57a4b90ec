#pragma once
// Looks for NaN and infinity in what kernels have written.
#include <string>

#include "actors/observer.h"

namespace sluice::actors {

// The file for one output, in a folder with others of the run.
std::string output_file(const plan::Kernel& kernel, int output, uint64_t step, const char* suffix);

// Throws kRuntime when a floating-point output holds a NaN or an infinity, naming the output, the first such element
// and the file in `directory` to which the whole output was written (raw, row-major).
class NumericsCheck : public KernelObserver {
 public:
  explicit NumericsCheck(std::string directory) : directory_(std::move(directory)) {}
  bool wants(const plan::Kernel&, uint64_t) const override { return true; }
  void wrote(const plan::Kernel& kernel, int index, int output, uint64_t step, const std::byte* data) override;

 private:
  std::string directory_;
};

}  // namespace sluice::actors
