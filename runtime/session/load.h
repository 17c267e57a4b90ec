#pragma once
// From a plan and its bindings to a session ready to open.
#include <memory>

#include "runtime/session/session_core.h"

namespace sluice {

// Throws with what is wrong; nothing is left behind.
std::shared_ptr<SessionCore> load_core(Engine& engine, plan::Plan plan, const VariableBindings& variables,
                                       SessionOptions options);

// The slots of initial tokens become zeros, as at the beginning of a run.
void clear_initial_tokens(Engine& engine, const LoadedPlan& loaded);

}  // namespace sluice
