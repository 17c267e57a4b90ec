#include "runtime/session/step_waits.h"

#include <thread>

#include "actors/stream_executor.h"

namespace sluice {
namespace {

// Every actor has fired as often as so many steps let it. It is counted a moment after its tokens have left, and one
// that no sink waits for may lag behind: nobody tells of either, so this looks for it.
void wait_fired(SessionState& session, uint64_t steps, Timeout timeout) SLUICE_EXCLUDES(session.mutex) {
  constexpr int kYields = 100;
  constexpr Timeout kSlice = std::chrono::microseconds(500);
  const Deadline deadline(timeout);
  const RunnerUse runner = session.use_runner();
  for (int looks = 0; runner && !runner->has_fired(steps) && !runner->wait_done(Timeout::zero()); ++looks) {
    if (session.manual ? !session.engine.step() : deadline.left() == Timeout::zero())
      session.fail_timeout(fmt::format("not all actors are done with {} steps", steps), timeout);
    if (session.manual) continue;
    if (looks < kYields) {
      std::this_thread::yield();
      continue;
    }
    {
      const MutexLock lock(session.mutex);
      if (session.lifecycle.cancelled()) return;
    }
    check_interrupt();
    std::this_thread::sleep_for(kSlice);
  }
}

// In a fork, accesses that were under way then never end, and a lock that another thread held is held for ever.
void check_accesses_before_fork(const SessionState& session, bool writes_only) SLUICE_UNCHECKED_LOCKS {
  if (session.lifecycle.closed()) return;
  const uint64_t due = session.accesses.due(session.runner.get()->counts(), session.admission.submitted(), writes_only);
  if (session.accesses.done(writes_only) < due) session.check_process();
}

}  // namespace

void wait_finished(SessionState& session, Timeout timeout) {
  session.check_process();
  const Deadline deadline(timeout);
  MutexLock lock(session.mutex);
  const uint64_t steps = session.admission.submitted();
  const uint64_t period = session.runner.get() == nullptr ? 1 : session.runner.get()->counts().period();
  const uint64_t due = steps - steps % period;
  const uint64_t resets = session.lifecycle.resets();
  const bool finished = session.wait_for(lock, session.changed, timeout, [&]() SLUICE_REQUIRES(session.mutex) {
    if (session.admission.finished() >= due || session.lifecycle.resets() != resets) return true;
    session.telling.wake_at = std::min(session.telling.wake_at, due);
    return false;
  });
  const uint64_t left = steps - session.admission.finished();
  const bool reset = session.lifecycle.resets() != resets;
  lock.unlock();
  if (!finished) session.fail_timeout(fmt::format("{} steps in flight are not finished", left), timeout);
  if (!reset) wait_fired(session, due, deadline.left());
  wait_accesses(session, false, deadline.left());
  if (session.turns == nullptr) return;
  if (const RunnerUse runner = session.use_runner()) synchronize_streams(session);
}

void synchronize_streams(SessionState& session) {
  for (const auto& executor : session.loaded->streams)
    if (executor->stream().asynchronous()) static_cast<void>(executor->stream().synchronize());
}

bool drain(SessionState& session, actors::Runner& runner, Timeout timeout) {
  const Deadline deadline(timeout);
  if (session.manual) {
    while (!runner.wait_done(Timeout::zero())) {
      if (!session.engine.step()) return true;  // cannot be: the ending protocol needs no other messages
    }
    return true;
  }
  constexpr Timeout kSlice = std::chrono::milliseconds(50);
  while (!runner.wait_done(std::min(deadline.left(), kSlice))) {
    if (session.never_active) return true;
    if (deadline.left() == Timeout::zero()) return false;
    check_interrupt();
  }
  return true;
}

Status wait_step(SessionState& session, StepState& state, Timeout timeout) {
  if (state.done()) return state.status();
  session.check_process();
  const auto fail = [&]() { session.fail_timeout(fmt::format("step {} is not finished", state.step), timeout); };
  MutexLock lock(session.mutex);
  if (session.lifecycle.closed()) return state.status();
  if (session.manual || session.waits_for_itself()) {  // then this steps, or refuses
    const bool finished = session.wait_for(lock, session.changed, timeout, [&] { return state.done(); });
    lock.unlock();
    if (!finished) fail();
    return state.status();
  }
  lock.unlock();
  if (!state.wait(timeout, session.short_wait)) fail();
  return state.status();
}

void wait_accesses(SessionState& session, bool writes_only, Timeout timeout) {
  if (session.accesses.actors(writes_only).empty()) return;
  if (session.forked()) return check_accesses_before_fork(session, writes_only);
  MutexLock lock(session.mutex);
  if (session.lifecycle.closed() || session.runner.get() == nullptr) return;
  const uint64_t due = session.accesses.due(session.runner.get()->counts(), session.admission.submitted(), writes_only);
  const VariableAccesses::Waiting waiting(session.accesses);
  const uint64_t resets = session.lifecycle.resets();
  const auto over = [&]() SLUICE_REQUIRES(session.mutex) {
    return session.lifecycle.closed() || session.lifecycle.resets() != resets;
  };
  const bool idle = session.wait_for(lock, session.changed, timeout, [&]() SLUICE_REQUIRES(session.mutex) {
    return over() || session.lifecycle.data_ended() || session.accesses.done(writes_only) >= due;
  });
  if (over() || session.runner.get() == nullptr) return;
  const bool ended = session.lifecycle.data_ended();
  lock.unlock();
  const RunnerUse runner = session.use_runner();
  if (!runner) return;
  if (!idle || (ended && !drain(session, *runner, timeout)))
    session.fail_timeout("its accesses to variables are not finished", timeout);
  for (const int actor : session.accesses.actors(writes_only)) {
    Stream& stream = runner->nodes()[actor]->home().stream();
    if (stream.asynchronous()) static_cast<void>(stream.synchronize());  // failures reach the steps' handles
  }
}

bool give_up(SessionState& session, StepState& state, uint64_t use, const Status& status) {
  std::shared_ptr<StepState> kept;
  {
    const MutexLock lock(session.mutex);
    if (session.lifecycle.closed() || session.runner.get() == nullptr || state.use != use || state.done()) return false;
    kept = session.book.state(state.step);
    if (kept.get() != &state || !state.pending.ok()) return false;  // it ends, and is being told of
    state.pending = status;
    session.runner.get()->give_up(state.step);
    state.finish(status);
  }
  state.tell();
  return true;
}

void give_up_late(SessionState& session, StepState& state, uint64_t use) noexcept {
  try {
    MutexLock lock(session.mutex);
    if (state.use != use || state.done()) return;
    const uint64_t step = state.step;
    const std::string tag = state.tag;
    lock.unlock();
    const std::string who = session.wait_report();
    const Status late = {ErrorKind::kTimeout,
                         fmt::format("session '{}': step {}: given up, as it was not over by its deadline; {}",
                                     session.plan().name, step, who.empty() ? "no actor is at work" : who)};
    give_up(session, state, use, tagged(late, tag));
  } catch (...) {
    give_up(session, state, use, Status::from_current_exception());
  }
}

}  // namespace sluice
