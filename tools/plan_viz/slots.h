#pragma once
// The same plan with other numbers of slots, so that a reader of the page can try them.
#include <vector>

#include "plan/plan.h"

namespace sluice::plan_viz {

inline constexpr size_t kMostPlans = 256;

// A plan for each choice of one to `most` slots in every register that has data and shares its slots with no other;
// more than one where rates or first values need them. Some may block: verify() says so of them. Throws kValue where
// that would be more than kMostPlans plans, or none but this one.
std::vector<plan::Plan> plans_with_slots(const plan::Plan& plan, int most);

}  // namespace sluice::plan_viz
