#pragma once
// Decides which quotas a plan may have while it runs.
#include <string>
#include <vector>

#include "plan/plan.h"

namespace sluice {

// The register of this name. Throws kValue where the plan has none, kUnsupported where its slots are not its own.
int changeable_register(const plan::Plan& plan, const std::string& name);

// Throws kValue unless the plan runs for ever with `quotas`, of which that of `changed` is new, in the memory that it
// has.
//
// It then does so from any state of a run with other quotas, too. Take an endless order of firings that the new quotas
// allow from the beginning on, and of it the first firing that has not happened. All before it have: so its tokens have
// come, and the slots that it needs have come back, since its actor has written no more than in that order.
void check_quotas(const plan::Plan& plan, const std::vector<int>& quotas, int changed);

}  // namespace sluice
