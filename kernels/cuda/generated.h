#pragma once
// Kernels that are launched from generated sources.
#include <atomic>
#include <deque>
#include <memory>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/program.h"
#include "kernels/cuda/source.h"

namespace sluice::cuda {

// The address of an operand in a run that has it.
void* address_of(const Operand& operand, const KernelArgs& args);

// Runs its stages in their order. A program takes (failure word, ticket, operands).
class GeneratedKernel final : public PreparedKernel {
 public:
  // Compiles the sources for the query's device.
  GeneratedKernel(const plan::KernelQuery& query, Generated generated);
  void run(const KernelArgs& args) const override;

 private:
  struct Stage {
    std::shared_ptr<const Program> program;
    int64_t blocks;
    std::vector<Operand> operands;
    DescribeFailure describe;
    mutable std::atomic<CUfunction> function{nullptr};  // of the one device it is prepared for
  };
  CUfunction function(const Stage& stage, CudaStream& stream) const;
  void launch(const Stage& stage, CudaStream& stream, const KernelArgs& args) const;

  const std::string op_;
  const size_t inputs_;
  std::deque<Stage> stages_;
};

inline constexpr int kMostImplementations = 8;  // of one kernel that a library is asked for

// A vendor's library that may take an op in the place of generated sources.
struct LibraryKernels {
  std::string name = {};  // "" where the library is not to be had
  // The library's kernel of a query, or null where the generated one must serve.
  std::unique_ptr<PreparedKernel> (*prepare)(const plan::KernelQuery& query) = nullptr;
  // KernelDef::implementations, where it has several.
  std::vector<std::string> (*implementations)(const plan::KernelQuery& query) = nullptr;
};

using Generate = Generated (*)(const plan::KernelQuery& query);

// How `def` is prepared, and the text that it shows: its sources', or a library's kernel, which has none.
void set_generated(KernelDef& def, Generate generate, const LibraryKernels& library = {});

// The kernel of an op on cuda: its sources or a library's, and what the cpu's kernel says of layouts and of outputs in
// place, which they must allow alike. REQUIRES: the table has the cpu's.
void add_generated(KernelTable& table, const char* op, Generate generate, const LibraryKernels& library = {});

}  // namespace sluice::cuda
