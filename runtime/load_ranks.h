#pragma once
// Loading a plan of several ranks: what this process runs of it, and with whom.
#include "runtime/session_core.h"

namespace sluice {

// This rank's part of the plan; `loaded` gets the world and a communicator for each group it is in. Waits for the other
// ranks, which must load the same plan. Throws kUnsupported when the engine has no world, kValue when its size is not
// the plan's or another rank loads another plan (in every rank), and what a communicator throws.
plan::Plan join_ranks(Engine& engine, const plan::Plan& plan, SessionCore::Loaded& loaded);

}  // namespace sluice
