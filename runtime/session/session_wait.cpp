// The callers' side of a session: waiting for steps, and giving them up.
#include <algorithm>
#include <thread>

#include "actors/stream_executor.h"
#include "runtime/session/engine.h"
#include "runtime/session/session_core.h"

namespace sluice {

void SessionCore::wait_all(Timeout timeout) {
  wait_finished(timeout);
  if (const RunnerInUse runner = this->runner(); runner != nullptr) runner->take_unseen_failure().throw_if_error();
  std::unique_lock lock(mutex_);
  const Status late = std::exchange(late_error_, {});
  lock.unlock();
  late.throw_if_error();
}

void SessionCore::wait_finished(Timeout timeout) {
  check_process();
  const Deadline deadline(timeout);
  std::unique_lock lock(mutex_);
  const uint64_t steps = submitted_;
  const uint64_t period = runner_ == nullptr ? 1 : this->period();
  // Steps of a period that is not complete cannot finish.
  const uint64_t due = steps - steps % period;
  const uint64_t resets = resets_;
  const bool finished = wait_for(lock, changed_, timeout, [&] {
    if (finished_ >= due || resets_ != resets) return true;
    wake_at_ = std::min(wake_at_, due);
    return false;
  });
  if (!finished) {
    lock.unlock();
    fail_timeout(fmt::format("{} steps in flight are not finished", steps - finished_), timeout);
  }
  const bool reset = resets_ != resets;
  lock.unlock();
  if (!reset) wait_fired(due, deadline.left());
  wait_touches(false, deadline.left());
  if (turns_ == nullptr) return;
  if (const RunnerInUse runner = this->runner(); runner != nullptr) synchronize_streams();
}

// Work that no output and no variable depends on may still be queued on a device. REQUIRES: a RunnerInUse is held.
void SessionCore::synchronize_streams() const {
  for (const auto& executor : loaded_->streams) {
    if (executor->stream().asynchronous()) static_cast<void>(executor->stream().synchronize());
  }
}

// An actor is counted a moment after its tokens have left, and those that no sink waits for may lag behind: nobody
// tells of either, so it is looked for.
void SessionCore::wait_fired(uint64_t steps, Timeout timeout) {
  constexpr int kYields = 100;
  constexpr Timeout kSlice = std::chrono::microseconds(500);
  const Deadline deadline(timeout);
  const RunnerInUse runner = this->runner();
  for (int looks = 0; runner != nullptr && !runner->has_fired(steps) && !runner->wait_done(Timeout::zero()); ++looks) {
    if (manual_ ? !engine_.step() : deadline.left() == Timeout::zero())
      fail_timeout(fmt::format("not all actors are done with {} steps", steps), timeout);
    if (manual_) continue;
    if (looks < kYields) {
      std::this_thread::yield();
      continue;
    }
    std::unique_lock lock(mutex_);
    if (closing_) return;
    lock.unlock();
    check_interrupt();
    std::this_thread::sleep_for(kSlice);
  }
}

void SessionCore::check_may_cancel(const char* what) const {
  SLUICE_CHECK_KIND(kUnsupported, loaded_->world == nullptr,
                    "session '{}': {} of a step that other ranks take part in; stop the session on all of them",
                    plan().name, what);
}

bool SessionCore::cancel_step(StepState& state) {
  check_process();
  check_may_cancel("cancel()");
  return give_up(state, state.use,
                 tagged({ErrorKind::kCancelled,
                         fmt::format("session '{}': step {}: cancelled by its caller", plan().name, state.step)},
                        state.tag));
}

void SessionCore::give_up_late(StepState& state, uint64_t use) noexcept {
  try {
    std::unique_lock lock(mutex_);
    if (state.use != use || state.done()) return;
    const uint64_t step = state.step;
    const std::string tag = state.tag;
    lock.unlock();
    const std::string who = wait_report();
    give_up(state, use,
            tagged({ErrorKind::kTimeout, fmt::format("session '{}': step {}: given up, as it was not over by its "
                                                     "deadline; {}",
                                                     plan().name, step, who.empty() ? "no actor is at work" : who)},
                   tag));
  } catch (...) {
    give_up(state, use, Status::from_current_exception());
  }
}

// What is asked for is done once at most: of a state that stands for another step by now, or whose step is over, it is
// too late.
bool SessionCore::give_up(StepState& state, uint64_t use, const Status& status) {
  std::shared_ptr<StepState> kept;
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || runner_ == nullptr || state.use != use || state.done()) return false;
    kept = pending_[state.step % pending_.size()];
    if (kept.get() != &state || !state.pending.ok()) return false;  // it ends, and is being told of
    state.pending = status;
    runner_->give_up(state.step);
    state.finish(status);
  }
  state.tell();
  return true;
}

Status SessionCore::wait_step(StepState& state, Timeout timeout) {
  if (state.done()) return state.status();
  check_process();
  std::unique_lock lock(mutex_);
  if (closed_) return state.status();
  if (manual_ || waits_for_itself()) {
    // Steps, or refuses.
    if (!wait_for(lock, changed_, timeout, [&] { return state.done(); })) {
      lock.unlock();
      fail_timeout(fmt::format("step {} is not finished", state.step), timeout);
    }
    return state.status();
  }
  lock.unlock();
  if (!state.wait(timeout, short_wait_)) fail_timeout(fmt::format("step {} is not finished", state.step), timeout);
  return state.status();
}

uint64_t SessionCore::touches_due(uint64_t steps, bool writes_only) const {
  uint64_t due = 0;
  for (const int actor : writes_only ? writing_ : touching_) due += runner_->counts().after(actor, steps);
  return due;
}

void SessionCore::wait_idle(bool writes_only) { wait_touches(writes_only, wait_timeout()); }

void SessionCore::wait_touches(bool writes_only, Timeout timeout) {
  const std::vector<int>& actors = writes_only ? writing_ : touching_;
  if (actors.empty()) return;
  const std::atomic<uint64_t>& touches = writes_only ? write_touches_ : touches_;
  if (forked()) {  // what was under way then never ends here
    if (!closed_ && touches.load() < touches_due(submitted_, writes_only)) check_process();
    return;
  }
  std::unique_lock lock(mutex_);
  if (closed_ || runner_ == nullptr) return;
  const uint64_t due = touches_due(submitted_, writes_only);
  const CountedWaiter<std::atomic<int>> waiter(idle_waiters_);
  const uint64_t resets = resets_;
  const bool idle = wait_for(lock, changed_, timeout,
                             [&] { return closed_ || data_ended_ || resets_ != resets || touches.load() >= due; });
  if (closed_ || runner_ == nullptr || resets_ != resets) return;
  const bool ended = data_ended_;
  lock.unlock();
  const RunnerInUse runner = this->runner();
  if (runner == nullptr) return;
  if (!idle || (ended && !drain(*runner, timeout))) fail_timeout("its accesses to variables are not finished", timeout);
  for (const int actor : actors) {
    Stream& stream = runner->nodes()[actor]->home().stream();
    if (stream.asynchronous()) static_cast<void>(stream.synchronize());  // failures reach the steps' handles
  }
}

}  // namespace sluice
