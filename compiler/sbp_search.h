#pragma once
// Searches for the layouts that cost a step least, where infer_sbp() decides node by node.
#include "compiler/compiler.h"
#include "compiler/sbp_infer.h"

namespace sluice::compiler {

// The conversions of a plan of layouts, each made once however many read it, and the work of the first device.
LayoutCost cost_of_layouts(const SbpPlan& plan);

struct SbpSearchOptions {
  bool ignore_user = false;     // what to_global() says of variables, and in the forward pass, is free, too
  double compute_ratio = 0.05;  // bytes that an operation counts
  double wait_bytes = 1.65e4;   // bytes that a conversion counts besides its own
  bool moves = true;            // false: candidates are only priced, and the greedy plan stays
};

// Begins with the layouts of infer_sbp(), and changes how one variable lies along one axis, or one free call of
// to_global, as long as a whole plan made so costs less. Variables whose names differ in numbers alone, of one type,
// are first tried together, then one by one. Between these infer_sbp() decides. How many plans are tried depends on the
// size of the graph alone, so that equal graphs get equal layouts. With a compute_ratio and wait_bytes of 0 the result
// moves no more bytes than the greedy plan.
SbpPlan search_sbp(const graph::Graph& graph, const Components* components, const SbpSearchOptions& options,
                   LayoutSearch* report);

// The plan of layouts that the options ask for. `report` may be null.
SbpPlan choose_sbp(const graph::Graph& graph, const CompileOptions& options, LayoutSearch* report = nullptr);

}  // namespace sluice::compiler
