#pragma once
// CUDA C++ of elementwise kernels, from an op's expression and the specs of its operands. Text in, text out: no device.
#include <cstdint>
#include <string>

#include "plan/target.h"
#include "streams/cuda/late_failure.h"

namespace sluice::cuda {

struct Source {
  std::string entry, text;
  int64_t elements = 0;
  DescribeFailure describe = nullptr;  // null: it cannot fail
};

// An op of expressions(). Throws kUnsupported for a dtype the op is not defined for.
Source elementwise_source(const plan::KernelQuery& query);
// "cast", "where" and "copy", between any strides.
Source cast_source(const plan::KernelQuery& query);
Source where_source(const plan::KernelQuery& query);
Source copy_source(const plan::KernelQuery& query);

}  // namespace sluice::cuda
