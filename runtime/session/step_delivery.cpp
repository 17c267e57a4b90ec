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
Status with_updates(const SessionState& s, const Status& status, uint64_t step) SLUICE_REQUIRES(s.mutex) {
  if (status.ok() || did_not_happen(status)) return status;
  std::string names;
  for (size_t v = 0; v < s.plan().variables.size(); ++v) {
    if (s.runner.get()->variable_step(static_cast<int>(v)) <= step) continue;
    names += (names.empty() ? "" : ", ") + s.plan().variables[v].name;
  }
  return names.empty() ? status : status.with_context("already updated: " + names);
}

// Decides how a step went. `answered`: what its sinks say.
Status outcome(SessionState& s, Status answered, uint64_t step) SLUICE_REQUIRES(s.mutex) {
  // Where several ranks run a plan, the first failure here says more than what comes back of it from the others.
  Status status = s.book.take_failures(step, std::move(answered), s.loaded->world != nullptr);
  for (size_t f = 0; f < s.loaded->files.size() && status.ok(); ++f) status = s.loaded->files[f]->check();
  if (status.ok() && s.lifecycle.cancelled() && !s.sinks.first_has_delivered(step)) {
    status = {ErrorKind::kCancelled,
              fmt::format("step {}: cancelled: the session was {}", step,
                          s.lifecycle.abandoned() ? "destroyed, and abandoned, since it did not end" : "stopped")};
  }
  if (!status.ok() && !s.lifecycle.failure().ok()) status = s.lifecycle.failure();
  return with_updates(s, status, step);
}

// Runs the callbacks of a step, which are the user's code. Returns what they throw.
Status run_callbacks(SessionState& s, StepState& state, uint64_t step, const Status& status, StepDone on_done)
    SLUICE_REQUIRES(s.mutex) {
  const MutexUnlock meanwhile(s.mutex);
  // They may need what waits for cores.
  if (actors::StreamExecutor* const here = actors::StreamExecutor::current()) here->unlease();
  Status thrown;
  if (status.ok()) state.cut();
  try {
    if (s.options().on_output) s.options().on_output(step, status, state.outputs);
  } catch (...) {
    thrown = Status::from_current_exception().with_context("thrown by on_output, which must not throw");
  }
  try {
    if (on_done) on_done(status, state.outputs);
  } catch (...) {
    thrown = Status::from_current_exception().with_context("thrown by on_done, which must not throw");
  }
  if (on_done) --s.callbacks;
  on_done = nullptr;  // what it holds may be anything of the caller's, and goes without the lock
  return thrown;
}

// From here on callers see that the step is finished.
void conclude(SessionState& s, const std::shared_ptr<StepState>& state, const Status& status) SLUICE_REQUIRES(s.mutex) {
  s.admission.finish();
  if (!status.ok() && status.kind() != ErrorKind::kEndOfData) s.book.count_failed();
  if (s.admission.finished() >= s.telling.wake_at) {
    s.telling.wake_at = UINT64_MAX;
    s.changed.notify_all();
  }
  if (state == nullptr) return;
  if (!state->done()) state->finish(status);  // it is, where its caller gave it up
  if (!state->pooled) state->tell();
}

// Returns the state whose callers are still to be woken; null when they have been.
[[nodiscard]] StepState* finish_step(SessionState& s, uint64_t step) SLUICE_REQUIRES(s.mutex) {
  const std::shared_ptr<StepState> state = s.book.remove(step);
  Status status = state != nullptr ? state->pending : Status();
  try {
    status = outcome(s, std::move(status), step);
  } catch (...) {
    if (status.ok()) status = Status::from_current_exception();
  }
  if (state == nullptr) {
    if (!did_not_happen(status)) s.book.add_late_failure(status);
    conclude(s, state, status);
    return nullptr;
  }
  status = tagged(status, state->tag);
  StepDone on_done = std::exchange(state->on_done, nullptr);
  if (s.options().on_output || on_done) {
    s.telling.step = state;
    s.book.add_late_failure(run_callbacks(s, *state, step, status, std::move(on_done)));
    if (std::exchange(s.telling.step, nullptr) == nullptr) return nullptr;  // abandoned meanwhile
  }
  conclude(s, state, status);
  return state->pooled ? state.get() : nullptr;
}

}  // namespace

StepState* finish_delivered(SessionState& s) {
  if (std::exchange(s.telling.busy, true)) return nullptr;
  StepState* last = nullptr;
  while (s.admission.finished() < s.sinks.delivered(s.admission.submitted())) {
    if (last != nullptr) last->tell();
    last = finish_step(s, s.admission.finished());
  }
  s.telling.busy = false;
  return last;
}

void finish_rest(SessionState& s) {
  if (const std::shared_ptr<StepState> told = std::move(s.telling.step)) {
    conclude(s, told, outcome(s, told->pending, s.admission.finished()));
    told->tell();
  }
  while (s.admission.finished() < s.admission.submitted())
    if (StepState* const state = finish_step(s, s.admission.finished())) state->tell();
}

void fail_step(SessionState& s, uint64_t step, const Status& status) {
  MutexLock lock(s.mutex);
  const std::string tag = s.book.tag_of(step);
  lock.unlock();
  log(LogLevel::kInfo, LogArea::kRuntime, "session '{}': step {}{} failed: {}", s.plan().name, step, tag,
      status.message());
  lock.lock();
  if (step >= s.admission.finished()) return s.book.add_failure(step, status);
  log(LogLevel::kError, LogArea::kRuntime, "session '{}': step {} had been finished: {}", s.plan().name, step,
      status.message());
  if (s.book.has_late_failure()) return;
  try {
    s.book.add_late_failure(with_updates(s, status, step));
  } catch (const std::bad_alloc&) {
    s.book.add_late_failure(status);
  }
}

}  // namespace sluice
