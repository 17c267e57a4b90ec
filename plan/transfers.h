#pragma once
// Registers from one rank to another, written out as what each of the two ranks does.
#include "plan/plan.h"

namespace sluice::plan {

// Stream indices of sends and receives start here; no two of a plan share one. A session gives them, and the other
// streams of collectives, its own: what waits for other ranks must not hold back another session.
inline constexpr int kFirstLane = 1 << 20;

// True when some edge goes from one rank to another.
bool crosses_ranks(const Plan& plan);

// The plan with every register that is read on another rank replaced by two: one on the producer's rank, read there by
// an actor that sends its tokens, and one on the reader's rank, made by an actor that receives them. The two actors
// meet in a kernel of a group of two, each on a stream of its own, because they wait. The register has its slots on
// both ranks. Ranks without a sink get one, so that their steps end.
//
// Between the two actors stays a register without bytes, the wire, which is all that still crosses ranks: RankPart
// cuts it, and what it orders is what the kernels do. So liveness of the result is that of the ranks together: throws
// kValue with the shortest blocking cycle when there is none, kUnsupported for memory that cannot travel.
// REQUIRES: verified.
Plan with_transfers(const Plan& plan);

}  // namespace sluice::plan
