#pragma once
// Shows what the ranks of a plan have to do with one another: collectives in their order, registers that go between
// them.
#include <string>
#include <vector>

#include "plan/plan.h"

namespace sluice::plan_viz {

struct Call {
  std::string op;
  uint64_t bytes = 0;        // that a rank gives
  std::vector<int> kernels;  // by rank of the group
};
struct Group {
  int number = 0;
  std::vector<int> ranks;
  std::vector<Call> calls;  // of one period, in the order they are met
};
struct Groups {
  std::vector<Group> groups;
  std::string problem;  // why there are no more calls, or "": rates that do not fit, or ranks that block one another
};
// REQUIRES: structure holds.
Groups groups_of(const plan::Plan& plan);

// A register read on other ranks.
struct Crossing {
  int reg = 0, from = 0;
  std::vector<int> to;
};
std::vector<Crossing> crossings_of(const plan::Plan& plan);

}  // namespace sluice::plan_viz
