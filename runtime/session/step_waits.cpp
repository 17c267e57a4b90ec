#include "runtime/session/step_waits.h"

#include <thread>

#include "actors/stream_executor.h"

namespace sluice {
namespace {

// Every actor has fired as often as so many steps let it. It is counted a moment after its tokens have left, and one
// that no sink waits for may lag behind: nobody tells of either, so this looks for it.
void wait_fired(SessionState& s, uint64_t steps, Timeout timeout) SLUICE_EXCLUDES(s.mutex) {
  constexpr int kYields = 100;
  constexpr Timeout kSlice = std::chrono::microseconds(500);
  const Deadline deadline(timeout);
  const RunnerUse runner = s.use_runner();
  for (int looks = 0; runner && !runner->has_fired(steps) && !runner->wait_done(Timeout::zero()); ++looks) {
    if (s.manual ? !s.engine.step() : deadline.left() == Timeout::zero())
      s.fail_timeout(fmt::format("not all actors are done with {} steps", steps), timeout);
    if (s.manual) continue;
    if (looks < kYields) {
      std::this_thread::yield();
      continue;
    }
    {
      const MutexLock lock(s.mutex);
      if (s.lifecycle.cancelled()) return;
    }
    check_interrupt();
    std::this_thread::sleep_for(kSlice);
  }
}

// In a fork, accesses that were under way then never end, and a lock that another thread held is held for ever.
void check_accesses_before_fork(const SessionState& s, bool writes_only) SLUICE_UNCHECKED_LOCKS {
  if (s.lifecycle.closed()) return;
  const uint64_t due = s.accesses.due(s.runner.get()->counts(), s.admission.submitted(), writes_only);
  if (s.accesses.done(writes_only) < due) s.check_process();
}

}  // namespace

void wait_finished(SessionState& s, Timeout timeout) {
  s.check_process();
  const Deadline deadline(timeout);
  MutexLock lock(s.mutex);
  const uint64_t steps = s.admission.submitted();
  const uint64_t period = s.runner.get() == nullptr ? 1 : s.runner.get()->counts().period();
  const uint64_t due = steps - steps % period;
  const uint64_t resets = s.lifecycle.resets();
  const bool finished = s.wait_for(lock, s.changed, timeout, [&]() SLUICE_REQUIRES(s.mutex) {
    if (s.admission.finished() >= due || s.lifecycle.resets() != resets) return true;
    s.telling.wake_at = std::min(s.telling.wake_at, due);
    return false;
  });
  const uint64_t left = steps - s.admission.finished();
  const bool reset = s.lifecycle.resets() != resets;
  lock.unlock();
  if (!finished) s.fail_timeout(fmt::format("{} steps in flight are not finished", left), timeout);
  if (!reset) wait_fired(s, due, deadline.left());
  wait_accesses(s, false, deadline.left());
  if (s.turns == nullptr) return;
  if (const RunnerUse runner = s.use_runner()) synchronize_streams(s);
}

void synchronize_streams(SessionState& s) {
  for (const auto& executor : s.loaded->streams)
    if (executor->stream().asynchronous()) static_cast<void>(executor->stream().synchronize());
}

bool drain(SessionState& s, actors::Runner& runner, Timeout timeout) {
  const Deadline deadline(timeout);
  if (s.manual) {
    while (!runner.wait_done(Timeout::zero())) {
      if (!s.engine.step()) return true;  // cannot be: the ending protocol needs no other messages
    }
    return true;
  }
  constexpr Timeout kSlice = std::chrono::milliseconds(50);
  while (!runner.wait_done(std::min(deadline.left(), kSlice))) {
    if (s.never_active) return true;
    if (deadline.left() == Timeout::zero()) return false;
    check_interrupt();
  }
  return true;
}

Status wait_step(SessionState& s, StepState& state, Timeout timeout) {
  if (state.done()) return state.status();
  s.check_process();
  const auto fail = [&]() { s.fail_timeout(fmt::format("step {} is not finished", state.step), timeout); };
  MutexLock lock(s.mutex);
  if (s.lifecycle.closed()) return state.status();
  if (s.manual || s.waits_for_itself()) {  // then this steps, or refuses
    const bool finished = s.wait_for(lock, s.changed, timeout, [&] { return state.done(); });
    lock.unlock();
    if (!finished) fail();
    return state.status();
  }
  lock.unlock();
  if (!state.wait(timeout, s.short_wait)) fail();
  return state.status();
}

void wait_accesses(SessionState& s, bool writes_only, Timeout timeout) {
  if (s.accesses.actors(writes_only).empty()) return;
  if (s.forked()) return check_accesses_before_fork(s, writes_only);
  MutexLock lock(s.mutex);
  if (s.lifecycle.closed() || s.runner.get() == nullptr) return;
  const uint64_t due = s.accesses.due(s.runner.get()->counts(), s.admission.submitted(), writes_only);
  const VariableAccesses::Waiting waiting(s.accesses);
  const uint64_t resets = s.lifecycle.resets();
  const auto over = [&]() SLUICE_REQUIRES(s.mutex) { return s.lifecycle.closed() || s.lifecycle.resets() != resets; };
  const bool idle = s.wait_for(lock, s.changed, timeout, [&]() SLUICE_REQUIRES(s.mutex) {
    return over() || s.lifecycle.data_ended() || s.accesses.done(writes_only) >= due;
  });
  if (over() || s.runner.get() == nullptr) return;
  const bool ended = s.lifecycle.data_ended();
  lock.unlock();
  const RunnerUse runner = s.use_runner();
  if (!runner) return;
  if (!idle || (ended && !drain(s, *runner, timeout)))
    s.fail_timeout("its accesses to variables are not finished", timeout);
  for (const int actor : s.accesses.actors(writes_only)) {
    Stream& stream = runner->nodes()[actor]->home().stream();
    if (stream.asynchronous()) static_cast<void>(stream.synchronize());  // failures reach the steps' handles
  }
}

bool give_up(SessionState& s, StepState& state, uint64_t use, const Status& status) {
  std::shared_ptr<StepState> kept;
  {
    const MutexLock lock(s.mutex);
    if (s.lifecycle.closed() || s.runner.get() == nullptr || state.use != use || state.done()) return false;
    kept = s.book.state(state.step);
    if (kept.get() != &state || !state.pending.ok()) return false;  // it ends, and is being told of
    state.pending = status;
    s.runner.get()->give_up(state.step);
    state.finish(status);
  }
  state.tell();
  return true;
}

void give_up_late(SessionState& s, StepState& state, uint64_t use) noexcept {
  try {
    MutexLock lock(s.mutex);
    if (state.use != use || state.done()) return;
    const uint64_t step = state.step;
    const std::string tag = state.tag;
    lock.unlock();
    const std::string who = s.wait_report();
    const Status late = {ErrorKind::kTimeout,
                         fmt::format("session '{}': step {}: given up, as it was not over by its deadline; {}",
                                     s.plan().name, step, who.empty() ? "no actor is at work" : who)};
    give_up(s, state, use, tagged(late, tag));
  } catch (...) {
    give_up(s, state, use, Status::from_current_exception());
  }
}

}  // namespace sluice
