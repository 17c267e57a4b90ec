#pragma once
// Is a plan right, and can it run forever? Every check recomputes what it needs from the plan alone. Loading refuses a
// verified plan only for reasons of the machine, the kernels it has, or what the plan is bound to.
#include <string>
#include <vector>

#include "plan/plan.h"

namespace sluice::plan {

struct Problem {
  std::string concern;  // "structure", "sizes", "rates", "liveness", "arenas", "collectives", "steps"
  std::string text;     // "<where>: <what>: <got>; <what must hold>"
};

struct VerifyReport {
  std::vector<Problem> problems;
  std::vector<int> repetitions;  // firings of each actor in one period; empty when the rates are inconsistent
  std::vector<int> certificate;  // one period that returns to the initial state: the plan's, else one found here
  bool certificate_given = false;
  bool ok() const { return problems.empty(); }
  std::string str() const;  // every problem, one per line; "" when ok
};

// Later concerns are checked only when the earlier ones they rest on hold.
VerifyReport verify(const Plan& plan);
// Throws kValue with the first problems.
void check(const Plan& plan);

// Firings of each actor in one period, smallest whole numbers; each component on its own except that all sources and
// feeds of a plan make the same steps, and a period whole ones. Throws kValue naming the cycle of edges when the rates
// are inconsistent.
std::vector<int> repetition_vector(const Plan& plan);
// Steps of one period, as callers count them. REQUIRES: `repetitions` are the plan's, and something starts.
int steps_of_period(const Plan& plan, const std::vector<int>& repetitions);

// Actors in an order in which they may fire for one period, by greedy execution of the firing rule (exact: a period
// exists if and only if greedy finds it). Throws kValue with the shortest blocking cycle.
// REQUIRES: structure and rates hold.
std::vector<int> find_schedule(const Plan& plan);

// The concerns, one file each (verify_<concern>.cpp). REQUIRES: the earlier ones found nothing.
void verify_structure(const Plan& plan, VerifyReport& report);
void verify_sizes(const Plan& plan, VerifyReport& report);
void verify_rates(const Plan& plan, VerifyReport& report);
void verify_liveness(const Plan& plan, VerifyReport& report);
void verify_arenas(const Plan& plan, VerifyReport& report);  // after liveness: uses the certificate
void verify_collectives(const Plan& plan, VerifyReport& report);
void verify_steps(const Plan& plan, VerifyReport& report);

}  // namespace sluice::plan
