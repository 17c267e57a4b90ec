#pragma once
// How many slots the registers need.
#include <vector>

#include "plan/plan.h"

namespace sluice::plan {

inline constexpr int kMaxQuota = 1 << 16;  // of a register

// Quotas with which the plan is live, per register: those with fixed[r] keep theirs, the others start at the least
// their own rates allow and grow only where a blocking cycle needs it. Sets no buffers; `plan.registers[r].slots` is
// not looked at. Throws kValue with the blocking cycle when no quotas would do (a cycle without tokens), or when the
// fixed ones stand in the way.
std::vector<int> minimal_quotas(const Plan& plan, const std::vector<bool>& fixed);

// The least quota the rates of register `reg` alone allow.
int least_quota(const Plan& plan, const Adjacency& adjacency, int reg);

}  // namespace sluice::plan
