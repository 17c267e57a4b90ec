#pragma once
// How many slots make a plan as fast as its streams allow, and no more.
#include <cstdint>
#include <string>
#include <vector>

#include "plan/time/simulator.h"

namespace sluice::plan {

struct QuotaOptions {
  std::vector<bool> fixed;        // per register: keeps its quota
  int cores = 0;                  // SimulateOptions::cores
  uint64_t spare = UINT64_MAX;    // bytes that slots may take beyond those of the least quotas
  int64_t most_work = 2'000'000;  // firings and kernels simulated in search of better quotas
};

struct QuotaChoice {
  std::vector<int> quotas;                    // per register
  uint64_t bytes = 0, least_bytes = 0;        // of all slots: with these quotas, with the least
  double period_ns = 0, least_period_ns = 0;  // per step, likewise; 0 where nothing takes time
  std::vector<CriticalHop> critical;          // what limits the period now
  std::string str(const Plan& plan) const;    // the choice and its reason, in one line
};

// Quotas with the shortest period in the simulator, of those with the fewest bytes, within the budget; never less than
// minimal_quotas(), which throws as it says there. It searches: from the least quotas on, a register that makes the
// critical cycle wait for a slot gets one more, as long as that helps; then slots that turned out needless are taken
// away. When some stream is busy all the time, no quotas can be faster, and the search keeps the least at once. `plan`
// has kernels with their costs and programs; slots are not looked at.
QuotaChoice fast_quotas(const Plan& plan, const QuotaOptions& options);

// Shows the price of speed: choices with ever more bytes and ever shorter periods, from the fewest bytes with which the
// plan is live to the result of fast_quotas(); a long curve has some two dozen. Each is the fastest that the search
// finds in its bytes.
std::vector<QuotaChoice> quota_curve(const Plan& plan, const QuotaOptions& options);

// Tells what one more slot would change in each register that makes the critical cycle wait; in the first 16 of them.
struct SlotGain {
  int reg = 0;
  uint64_t bytes = 0;    // more
  double period_ns = 0;  // then
};
std::vector<SlotGain> slot_gains(const Plan& plan, const Simulation& simulation, const SimulateOptions& options);

// Slots of each register that have to be equally many, since they are the same: a register by which each group is
// named.
std::vector<int> slot_groups(const Plan& plan);
// The bytes of one slot in each register, where each group counts once.
uint64_t slot_bytes(const Plan& plan, const std::vector<int>& groups, const std::vector<int>& quotas);

}  // namespace sluice::plan
