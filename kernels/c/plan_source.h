#pragma once
// A plan as one C11 file and its header: static memory, and a function that runs a step. Nothing is allocated, and
// nothing but <math.h> is called.
#include <cstddef>
#include <functional>
#include <string>

#include "plan/plan.h"

namespace sluice::c {

struct PlanSource {
  std::string source, header;
};

// The contents of a variable, contiguous; null: it has none, and begins with zeros.
using Contents = std::function<const void*(const std::string& variable)>;

// Prints a plan of one device c:0 (kernels/c/target.h) with one step in flight. `name` is what every name in the header
// begins with: a name in C. Throws kValue where it is none, kUnsupported for a plan that does not run in one fixed
// order once a step.
PlanSource plan_source(const plan::Plan& plan, const std::string& name, const Contents& contents);

// A name in C that is like `text`.
std::string c_name(const std::string& text);

}  // namespace sluice::c
