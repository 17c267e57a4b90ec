#pragma once
// Waits for the steps of a session, and gives them up. Each wait throws kTimeout naming who is stuck.
#include "runtime/session/session_state.h"

namespace sluice {

// Every step that was submitted is finished, all actors have fired for it, and its accesses to variables are done.
// Steps of a period that is not complete cannot finish, and are not waited for.
void wait_finished(SessionState& session, Timeout timeout) SLUICE_EXCLUDES(session.mutex);

// Every access to variables that was submitted is done; with `writes_only`, every write.
void wait_accesses(SessionState& session, bool writes_only, Timeout timeout) SLUICE_EXCLUDES(session.mutex);

// Returns how the step went.
Status wait_step(SessionState& session, StepState& state, Timeout timeout) SLUICE_EXCLUDES(session.mutex);

// All nodes of a runner that was stopped are done. False after `timeout`.
bool drain(SessionState& session, actors::Runner& runner, Timeout timeout) SLUICE_EXCLUDES(session.mutex);

// Work that nothing on the host has waited for is done on the devices. REQUIRES: the session is not at its end.
void synchronize_streams(SessionState& session);

// Ends a step with `status` before its tokens are home. `use`: the step that the state stood for. False where it is too
// late: the state stands for another step by now, or its step is over.
bool give_up(SessionState& session, StepState& state, uint64_t use, const Status& status)
    SLUICE_EXCLUDES(session.mutex);
// The same for a step that was not over by its deadline, where `use` of the state is still that step.
void give_up_late(SessionState& session, StepState& state, uint64_t use) noexcept SLUICE_EXCLUDES(session.mutex);

}  // namespace sluice
