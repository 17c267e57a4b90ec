#pragma once
// A graph as C.
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/c/plan_source.h"
#include "kernels/c/project.h"
#include "tensor/eager.h"
#include "tensor/trace.h"

namespace sluice {

// The graph and the weights of a bundle's directory, or a graph.txt, of which no constant is known.
CapturedGraph saved_graph(const std::string& path, const OpRegistry& ops);

struct ToCOptions {
  std::string name;            // what names in the header begin with; "": the graph's
  uint64_t memory_budget = 0;  // as in CompileOptions
  std::vector<std::string> disabled_passes = {};
  std::string order = "memory";  // of kernels, as in CompileOptions
  c::Sections sections = {};
};

// Plans it for device c:0, with one step at a time in as little memory as is found, and prints the plan. Variables that
// no step changes are constants. Throws the compiler's errors, and those of c::plan_source().
c::PlanSource to_c(EagerExecutor& eager, CapturedGraph captured, const ToCOptions& options);

// Steps as the engine computes them on its device c:0 (kernels/c/engine_device.h), one after the other, from the inputs
// of each. REQUIRES: nobody else uses the graph's variables, which steps may change.
c::Vectors known_steps(EagerExecutor& eager, CapturedGraph captured, const std::vector<std::vector<Tensor>>& steps,
                       const ToCOptions& options);
// One step on zeros, for a graph of which nothing is known.
std::vector<Tensor> zero_inputs(const CapturedGraph& captured);

}  // namespace sluice
