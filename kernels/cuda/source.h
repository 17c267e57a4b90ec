#pragma once
// CUDA C++ of kernels, from an op's definition and the specs of its operands. Text in, text out: no device.
#include <cstdint>
#include <string>
#include <vector>

#include "plan/target.h"
#include "streams/cuda/late_failure.h"

namespace sluice::cuda {

inline constexpr int64_t kThreads = 256;             // of a block, in every source
inline constexpr size_t kMostProgramOperands = 500;  // with what comes before them, below the 4 KiB of any driver

// An argument of a program after (failure word, ticket): an address of the run, moved by `offset` bytes.
struct Operand {
  enum class From : uint8_t { kInput, kOutput, kWorkspace } from = From::kInput;
  size_t index = 0;
  int64_t offset = 0;
};

// One program and its launch.
struct Source {
  std::string entry, text;
  bool contract = true;  // may the compiler join a product and a sum into one rounding?
  int64_t blocks = 0;    // 0: there is nothing to do
  std::vector<Operand> operands = {};
  DescribeFailure describe = nullptr;  // null: it cannot fail
};

// An op as launches in this order, and the workspace they share.
struct Generated {
  std::vector<Source> stages;
  uint64_t workspace_bytes = 0;
};

// How a kernel is put together: element by element over the output, in the order it lies in memory.
struct LoopBody {
  std::vector<std::string> input_types;
  std::string output_type;
  std::string functions;  // before the kernel
  std::string before;     // statements ahead of the store, with x0, x1, ... as the elements
  std::string value;      // what is stored
};
Source loop_source(const plan::KernelQuery& query, const LoopBody& body);

// An op of base/scalar. Throws kUnsupported for a dtype the op is not defined for.
Source elementwise_source(const plan::KernelQuery& query);
// "cast", "where" and "copy", between any strides.
Source cast_source(const plan::KernelQuery& query);
Source where_source(const plan::KernelQuery& query);
Source copy_source(const plan::KernelQuery& query);

}  // namespace sluice::cuda
