#pragma once
// Starts steps in the order of their numbers, from their submitters' inputs or from the backlog.
#include <utility>

#include "runtime/session/session_state.h"
#include "runtime/session/step_delivery.h"

namespace sluice {

// Copies inputs of a step. A device that fails to copy fails the step.
template <class Copy>
void copy_or_fail(SessionState& session, uint64_t step, Copy&& copy) {
  try {
    copy();
  } catch (...) {
    fail_step(session, step, Status::from_current_exception());
  }
}

// Gives the next step its start credits. One for which a source has no more data is over when the sinks say so.
void start_step(SessionState& session, uint64_t step) SLUICE_REQUIRES(session.mutex);

// Starts what the backlog holds and the plan now has slots for, unless another thread is at it, which takes it along.
void start_from_backlog(SessionState& session) SLUICE_EXCLUDES(session.mutex);

}  // namespace sluice
