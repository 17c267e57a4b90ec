#pragma once
// A session keeps these values on the disk while it runs (ADR 81).
#include <memory>

#include "base/files/spill_file.h"
#include "kernels/kernel.h"
#include "plan/plan.h"

namespace sluice {

// The file of a plan that spills, with a function for each kernel that moves a value to it or from it; null: the plan
// has none such. Throws kIo where the disk has no room for all of it.
std::shared_ptr<SpillFile> add_spill_functions(const plan::Plan& plan, HostFunctions& functions);

}  // namespace sluice
