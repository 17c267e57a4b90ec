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
// Of each group the actors that call its collectives, in the plan's order.
std::map<int, std::vector<int>> callers_of_groups(const Plan& plan);
// Of each group the ranks of those, ascending.
std::map<int, std::vector<int>> ranks_of_groups(const Plan& plan);
// One more than the highest rank of a stream.
int rank_count(const Plan& plan);
// The plan is for a world of ranks, if only of one: it has collectives.
bool together(const Plan& plan);
// What a rank has of a plan.
struct RankPart {
  Plan plan;                               // of one process: its actors in the plan's order, on devices of rank 0
  std::map<int, std::vector<int>> groups;  // of all ranks: who calls each group's collectives, ascending
};

// What `rank` runs. A variable that kernels of several ranks use is one in each of them. Registers between ranks become
// sends and receives (transfers.h, and what that throws). REQUIRES: verified.
RankPart part_of(const Plan& plan, int rank);

// What all ranks run, side by side: their parts in one plan, on devices of their ranks. What order registers between
// ranks make is made by the meetings of sends and receives alone, which liveness checks know nothing of: for
// simulation. REQUIRES and throws as part_of().
Plan side_by_side(const Plan& plan);

// All ranks as one process runs them: on its own devices, of streams that no two ranks share. Registers between ranks
// are registers like others; what rank r calls of the i-th of ranks_of_groups() is of group i * rank_count + r.
// Throws kUnsupported for variables of which each rank has one of its own.
// REQUIRES: verified.
Plan in_one_process(const Plan& plan);

}  // namespace sluice::plan
