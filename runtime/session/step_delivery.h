#pragma once
// Finishes the steps that sinks have delivered, in order, and tells their callers.
//
// A step is finished in this order: its outcome is decided, its callbacks run without the lock, then callers see that
// it is finished. So whoever is told of a step by its handle has been told by callbacks before.
#include "runtime/session/session_state.h"

namespace sluice {

// A firing of the step, or a copy of its inputs, has failed. Too late for a step that is finished: then wait_all() says
// so.
void fail_step(SessionState& session, uint64_t step, const Status& status) SLUICE_EXCLUDES(session.mutex);

// Finishes what is delivered, unless another thread is at it, which takes it along. Returns the state whose callers the
// caller of this function wakes when it has let go of the lock; null: there is none.
[[nodiscard]] StepState* finish_delivered(SessionState& session) SLUICE_REQUIRES(session.mutex);

// Finishes steps that cannot be delivered any more: they were cancelled, or their period was not completed.
void finish_rest(SessionState& session) SLUICE_REQUIRES(session.mutex);

}  // namespace sluice
