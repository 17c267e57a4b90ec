#pragma once
// The key of a plan in PlanCache: all that the plan depends on.
#include <string>

#include "compiler/compiler.h"

namespace sluice {

// Whether a key can tell of everything that the plan would depend on.
bool has_plan_key(const graph::Graph& graph, const plan::Target& target, const CompileOptions& options);
// REQUIRES: it has one.
std::string plan_key(const graph::Graph& graph, const plan::Target& target, const CompileOptions& options,
                     const ConstantLookup& constants);

}  // namespace sluice
