#pragma once
// How this machine would compute a kernel of a plan: what it has to choose from, and what it takes.
#include <string>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace sluice::plan_viz {

// Facts for `why`, as (name, text): which kinds of devices have a kernel of the op, and of the host the implementation
// and the instructions that are chosen when the plan is loaded here, with the reason.
std::vector<std::pair<std::string, std::string>> kernel_here(const plan::Plan& plan, int kernel);

}  // namespace sluice::plan_viz
