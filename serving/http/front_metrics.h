#pragma once
#include <string>

#include "serving/core/memory_budget.h"

namespace sluice::serving {

// Lines for the page of metrics: what clients make the front ends hold.
std::string front_metrics(const MemoryBudget& memory, int connections);

}  // namespace sluice::serving
