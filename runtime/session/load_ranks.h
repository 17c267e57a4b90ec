#pragma once
// Loading a plan of several ranks: what this process runs of it, and with whom.
#include "runtime/session/session_core.h"

namespace sluice {

// The part of the plan that this process runs: all of it, or this rank's part where the engine has a world. Throws
// kValue when the plan is wrong, or the world's size is not its own.
plan::Plan plan_here(const Engine& engine, const plan::Plan& plan);

// The same of a plan of several ranks; `loaded` gets the world and a communicator for each group. Waits for the other
// ranks, which must load the same plan. Throws kValue when the world's size is not the plan's or another rank loads
// another plan (in every rank), and what a communicator throws. REQUIRES: verified.
plan::Plan join_ranks(Engine& engine, const plan::Plan& plan, LoadedPlan& loaded);

}  // namespace sluice
