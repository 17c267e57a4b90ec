#include "runtime/session/step_delivery.h"

#include "actors/stream_executor.h"
#include "base/log.h"

namespace sluice {
namespace {

// A step that did not happen has not failed.
bool did_not_happen(const Status& status) {
  return status.kind() == ErrorKind::kCancelled || status.kind() == ErrorKind::kEndOfData;
}

// Names the variables that a step has updated although it failed. One that a later step has written counts as well.
Status with_updates(const SessionState& session, const Status& status, uint64_t step) SLUICE_REQUIRES(session.mutex) {
  if (status.ok() || did_not_happen(status)) return status;
  std::string names;
  for (size_t v = 0; v < session.plan().variables.size(); ++v) {
    if (session.runner.get()->variable_step(static_cast<int>(v)) <= step) continue;
    names += (names.empty() ? "" : ", ") + session.plan().variables[v].name;
  }
  return names.empty() ? status : status.with_context("already updated: " + names);
}

// Decides how a step went. `answered`: what its sinks say.
Status outcome(SessionState& session, Status answered, uint64_t step) SLUICE_REQUIRES(session.mutex) {
  // The first failure here says more than what comes back of it from other ranks.
  Status status = session.book.take_failures(step, std::move(answered), session.loaded->world != nullptr);
  for (size_t f = 0; f < session.loaded->files.size() && status.ok(); ++f) status = session.loaded->files[f]->check();
  if (status.ok() && session.lifecycle.cancelled() && !session.sinks.first_has_delivered(step)) {
    status = {
        ErrorKind::kCancelled,
        fmt::format("step {}: cancelled: the session was {}", step,
                    session.lifecycle.abandoned() ? "destroyed, and abandoned, since it did not end" : "stopped")};
  }
  if (!status.ok() && !session.lifecycle.failure().ok()) status = session.lifecycle.failure();
  return with_updates(session, status, step);
}

// Runs the callbacks of a step, which are the user's code. Returns what they throw.
Status run_callbacks(SessionState& session, StepState& state, uint64_t step, const Status& status, StepDone on_done)
    SLUICE_REQUIRES(session.mutex) {
  const MutexUnlock meanwhile(session.mutex);
  // They may need what waits for cores.
  if (actors::StreamExecutor* const here = actors::StreamExecutor::current()) here->unlease();
  Status thrown;
  if (status.ok()) state.cut();
  try {
    if (session.options().on_output) session.options().on_output(step, status, state.outputs);
  } catch (...) {
    thrown = Status::from_current_exception().with_context("thrown by on_output, which must not throw");
  }
  try {
    if (on_done) on_done(status, state.outputs);
  } catch (...) {
    thrown = Status::from_current_exception().with_context("thrown by on_done, which must not throw");
  }
  if (on_done) --session.callbacks;
  on_done = nullptr;  // what it holds may be anything of the caller's, and goes without the lock
  return thrown;
}

// From here on callers see that the step is finished.
void conclude(SessionState& session, const std::shared_ptr<StepState>& state, const Status& status)
    SLUICE_REQUIRES(session.mutex) {
  session.admission.finish();
  if (!status.ok() && status.kind() != ErrorKind::kEndOfData) session.book.count_failed();
  if (session.admission.finished() >= session.telling.wake_at) {
    session.telling.wake_at = UINT64_MAX;
    session.changed.notify_all();
  }
  session.admission.offer_room();
  if (state == nullptr) return;
  if (!state->done()) state->finish(status);  // it is, where its caller gave it up
  if (!state->pooled) state->tell();
}

// Returns the state whose callers are still to be woken; null when they have been.
[[nodiscard]] StepState* finish_step(SessionState& session, uint64_t step) SLUICE_REQUIRES(session.mutex) {
  const std::shared_ptr<StepState> state = session.book.remove(step);
  Status status = state != nullptr ? state->pending : Status();
  try {
    status = outcome(session, std::move(status), step);
  } catch (...) {
    if (status.ok()) status = Status::from_current_exception();
  }
  if (state == nullptr) {
    if (!did_not_happen(status)) session.book.add_late_failure(status);
    conclude(session, state, status);
    return nullptr;
  }
  status = tagged(status, state->tag);
  StepDone on_done = std::exchange(state->on_done, nullptr);
  if (session.options().on_output || on_done) {
    session.telling.step = state;
    session.book.add_late_failure(run_callbacks(session, *state, step, status, std::move(on_done)));
    if (std::exchange(session.telling.step, nullptr) == nullptr) return nullptr;  // abandoned meanwhile
  }
  conclude(session, state, status);
  return state->pooled ? state.get() : nullptr;
}

}  // namespace

StepState* finish_delivered(SessionState& session) {
  if (std::exchange(session.telling.busy, true)) return nullptr;
  StepState* last = nullptr;
  while (session.admission.finished() < session.sinks.delivered(session.admission.submitted())) {
    if (last != nullptr) last->tell();
    last = finish_step(session, session.admission.finished());
  }
  session.telling.busy = false;
  return last;
}

void finish_rest(SessionState& session) {
  if (const std::shared_ptr<StepState> told = std::move(session.telling.step)) {
    conclude(session, told, outcome(session, told->pending, session.admission.finished()));
    told->tell();
  }
  while (session.admission.finished() < session.admission.submitted())
    if (StepState* const state = finish_step(session, session.admission.finished())) state->tell();
}

void fail_step(SessionState& session, uint64_t step, const Status& status) {
  MutexLock lock(session.mutex);
  const std::string tag = session.book.tag_of(step);
  lock.unlock();
  log(LogLevel::kInfo, LogArea::kRuntime, "session '{}': step {}{} failed: {}", session.plan().name, step, tag,
      status.message());
  lock.lock();
  if (step >= session.admission.finished()) return session.book.add_failure(step, status);
  log(LogLevel::kError, LogArea::kRuntime, "session '{}': step {} had been finished: {}", session.plan().name, step,
      status.message());
  if (session.book.has_late_failure()) return;
  try {
    session.book.add_late_failure(with_updates(session, status, step));
  } catch (const std::bad_alloc&) {
    session.book.add_late_failure(status);
  }
}

}  // namespace sluice
