#pragma once
// Kernels that are launched from a generated source.
#include <atomic>
#include <memory>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/program.h"
#include "kernels/cuda/source.h"

namespace sluice::cuda {

// One element of the output per thread and turn. The program takes (failure word, ticket, inputs, output).
class GeneratedKernel final : public PreparedKernel {
 public:
  // Compiles the source for the query's device.
  GeneratedKernel(const plan::KernelQuery& query, Source source);
  void run(const KernelArgs& args) const override;

 private:
  CUfunction function(CudaStream& stream) const;

  const std::string op_;
  const size_t inputs_;
  const int64_t elements_;
  const DescribeFailure describe_;
  std::shared_ptr<const Program> program_;
  mutable std::atomic<CUfunction> function_{nullptr};  // of the one device it is prepared for
};

}  // namespace sluice::cuda
