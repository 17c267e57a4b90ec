#pragma once
// A captured graph as C.
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/c/plan_source.h"
#include "tensor/eager.h"
#include "tensor/trace.h"

namespace sluice {

struct ToCOptions {
  std::string name;            // what names in the header begin with; "": the graph's
  uint64_t memory_budget = 0;  // as in CompileOptions
  std::vector<std::string> disabled_passes = {};
};

// Plans it for device c:0, with one step at a time in as little memory as is found, and prints the plan. Variables that
// no step changes are constants. Throws the compiler's errors, and those of c::plan_source().
c::PlanSource to_c(EagerExecutor& eager, CapturedGraph captured, const ToCOptions& options);

}  // namespace sluice
