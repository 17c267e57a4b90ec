#pragma once
// A plan of several ranks, as each of them has it.
//
// The file holds all ranks. A process runs the actors whose streams are on its rank, with what these use: that part is
// itself a plan, of one process.
#include <map>
#include <vector>

#include "plan/plan.h"

namespace sluice::plan {

inline int rank_of(const Plan& plan, int actor) { return plan.streams[plan.actors[actor].stream].device.rank; }
// The actors that call the collectives of each group, in the plan's order.
std::map<int, std::vector<int>> callers_of_groups(const Plan& plan);
// The ranks of those actors for each group, ascending.
std::map<int, std::vector<int>> ranks_of_groups(const Plan& plan);
// One more than the highest rank of a stream.
int rank_count(const Plan& plan);
// The plan is for a world of ranks, if only of one: it has collectives.
bool together(const Plan& plan);
// One rank's part of a plan.
struct RankPart {
  Plan plan;                               // of one process: its actors in the plan's order, on devices of rank 0
  std::map<int, std::vector<int>> groups;  // of all ranks: who calls each group's collectives, ascending
};

// The part that `rank` runs. A variable that kernels of several ranks use is one in each of them. Registers between
// ranks become sends and receives (transfers.h, and what that throws). REQUIRES: verified.
RankPart part_of(const Plan& plan, int rank);

// The parts of all ranks side by side, in one plan, on devices of their ranks. Registers between ranks order things
// only by the meetings of sends and receives, which liveness checks know nothing of: the plan is for simulation.
// REQUIRES and throws as part_of().
Plan side_by_side(const Plan& plan);

// All ranks as one process runs them: on its own devices, of streams that no two ranks share. Registers between ranks
// are registers like others; what rank r calls of the i-th of ranks_of_groups() is of group i * rank_count + r.
// Throws kUnsupported for variables of which each rank has one of its own.
// REQUIRES: verified.
Plan in_one_process(const Plan& plan);

}  // namespace sluice::plan
