// How a session ends: cancelled and drained, or, when a kernel does not return, abandoned.
#include <algorithm>

#include "actors/stream_executor.h"
#include "base/log.h"
#include "plan/ranks.h"
#include "runtime/session/engine.h"
#include "runtime/session/load.h"
#include "runtime/session/session_core.h"

namespace sluice {
// Whoever opened it has ended it. An abandoned session is let go by its engine, once its actors have ended.
SessionCore::~SessionCore() = default;

void SessionCore::cancel() {
  std::lock_guard lock(mutex_);
  if (closing_) return;
  closing_ = true;
  // What is left of finished steps, other ranks may still wait for.
  if (loaded_->world == nullptr || finished_ != submitted_) runner_->cancel();
  wake_room_waiters();
  published_changed_.notify_all();
}

void SessionCore::stop(Timeout timeout) {
  check_process();
  if (close(timeout)) return;
  SLUICE_CHECK_KIND(kRuntime, !on_own_thread(),
                    "session '{}': stop() on a stream's own thread would never end; stop it from another thread",
                    plan().name);
  fail_timeout("is being stopped and still not at its end", timeout);
}

void SessionCore::end(Timeout timeout) noexcept {
  if (forked()) {  // its locks, streams and actors are as they were at that moment, for ever
    static_cast<void>(new (std::nothrow) std::shared_ptr<SessionCore>(shared_from_this()));
    return;
  }
  const UninterruptedScope here;
  bool ended = false;
  try {
    ended = close(timeout);
  } catch (...) {
    // No memory to end it in order; but its actors are cancelled, so they end by themselves.
  }
  if (!ended) abandon();
}

bool SessionCore::on_own_thread() const {
  std::lock_guard lock(mutex_);
  return !closed_ && runner_ != nullptr && runner_->on_own_thread();
}

bool SessionCore::actors_ended() const {
  std::lock_guard lock(mutex_);
  return readers_ == 0 && (runner_ == nullptr || runner_->wait_done(Timeout::zero()));
}

bool SessionCore::close(Timeout timeout) {
  const Deadline deadline(timeout);
  cancel();
  const bool own_thread = on_own_thread();
  std::unique_lock lock(mutex_);
  if (closed_) return true;
  if (own_thread) return false;
  if (!interruptible_wait(lock, changed_, deadline.left(), [&] { return !ending_ || closed_; })) return false;
  if (closed_) return true;
  ending_ = true;
  bool ended = false;
  try {
    ended = interruptible_wait(lock, published_changed_, deadline.left(), [&] { return none_is_published(); });
    if (ended) {
      lock.unlock();
      ended = end_actors(deadline.left());
      if (ended) let_go();
      lock.lock();
    }
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    ending_ = false;
    changed_.notify_all();
    throw;
  }
  ending_ = false;
  changed_.notify_all();
  return ended;
}

// REQUIRES: ending_, so that runner_ stays.
bool SessionCore::end_actors(Timeout timeout) {
  if (control_ == nullptr || never_active_) return true;
  runner_->stop();
  return drain(*runner_, timeout);
}

// Waits until all nodes of a runner that was stopped are done. False after `timeout`.
bool SessionCore::drain(actors::Runner& runner, Timeout timeout) {
  const Deadline deadline(timeout);
  if (manual_) {
    while (!runner.wait_done(Timeout::zero())) {
      if (!engine_.step()) return true;  // cannot be: the ending protocol needs no other messages
    }
    return true;
  }
  constexpr Timeout kSlice = std::chrono::milliseconds(50);
  while (!runner.wait_done(std::min(deadline.left(), kSlice))) {
    if (never_active_) return true;
    if (deadline.left() == Timeout::zero()) return false;
    check_interrupt();
  }
  return true;
}

// What was submitted ends, and all actors with it; then new ones begin.
void SessionCore::reset() {
  check_process();
  SLUICE_CHECK_KIND(kUnsupported, !plan::together(plan()),
                    "session '{}': reset() of a plan of several ranks; load it again on all of them", plan().name);
  const Deadline deadline(wait_timeout());
  std::unique_lock lock(mutex_);
  SLUICE_CHECK_KIND(kRuntime, !waits_for_itself(),
                    "session '{}': reset() on a stream's own thread would never end; call it from another thread",
                    plan().name);
  bool ended = interruptible_wait(lock, changed_, deadline.left(), [&] { return !ending_; });
  session_error_.throw_if_error();
  const auto check_stopped = [&] {
    SLUICE_CHECK_KIND(kRuntime, !closing_, "session '{}' was stopped; load the plan again", plan().name);
  };
  check_stopped();
  if (ended) {
    ending_ = resetting_ = true;
    wake_room_waiters();
    try {
      ended = wait_for(lock, published_changed_, deadline.left(), [&] {
        return closing_ || (data_ended_ ? none_is_published() : published_ == submitted_ && !publishing_);
      });
      check_stopped();
      if (ended) {
        data_ended_ = true;  // if renewing fails, reset() may be tried again
        runner_->stop();
        lock.unlock();
        ended = drain(*runner_, deadline.left());
        if (ended) renew();
        lock.lock();
      }
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      ending_ = resetting_ = false;
      changed_.notify_all();
      throw;
    }
    ending_ = resetting_ = false;
    changed_.notify_all();
  }
  lock.unlock();
  if (!ended) fail_timeout("is being reset and still at work", wait_timeout());
}

// REQUIRES: all actors have ended; ending_, so that runner_ stays, and resetting_, so that nobody submits.
void SessionCore::renew() {
  std::shared_ptr<actors::Runner> runner = make_runner();
  for (const auto& stream : loaded_->streams) {
    if (stream->stream().asynchronous()) static_cast<void>(stream->stream().synchronize());
  }
  clear_initial_tokens(engine_, *loaded_);
  port_memory_->clear_inputs();
  port_memory_->bind(*runner);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return readers_ == 0; });
  SLUICE_CHECK_KIND(kRuntime, !closing_, "session '{}' was stopped; load the plan again", plan().name);
  const bool traced = runner_->flag(actors::kRunTraced);
  std::swap(runner_, runner);
  ++resets_;
  submitted_ = finished_ = failed_ = 0;
  published_ = touches_ = write_touches_ = 0;
  failures_.clear();
  in_backlog_.assign(in_backlog_.size(), false);
  for (Sink& sink : sinks_) {
    sink.next_step = sink.fired = 0;
    sink.ended = false;
  }
  for (FedRegister& fed : fed_) fed.writable = 0;
  lock.unlock();
  engine_.actor_system().unregister_run(std::exchange(control_, nullptr));
  runner.reset();
  try {
    control_ = engine_.actor_system().register_run(*this, runner_->nodes());
    if (traced) runner_->set_trace(true);
    runner_->activate(wait_timeout());
  } catch (...) {
    never_active_ = !runner_->activated();
    lock.lock();
    session_error_ = Status::from_current_exception();
    throw;
  }
  lock.lock();
  data_ended_ = false;
}

void SessionCore::detach_variables() {
  if (control_ != nullptr) engine_.actor_system().unregister_run(control_);
  control_.reset();
  for (const auto& variable : loaded_->variables) variable->detach(this);
  for (const auto& copy : loaded_->packed) copy->memory()->detach(this);
}

// Steps that cannot finish any more: they were cancelled, or their period was not completed.
void SessionCore::finish_rest(std::unique_lock<std::mutex>& lock) {
  if (const std::shared_ptr<StepState> told = std::move(telling_)) {
    conclude(told, outcome(told->pending, finished_));
    told->tell();
  }
  while (finished_ < submitted_) {
    if (StepState* const state = finish_step(lock, finished_)) state->tell();
  }
  last_stats_.submitted = submitted_;
  last_stats_.finished = finished_;
  last_stats_.failed = failed_;
  last_stats_.in_flight = 0;
}

void SessionCore::let_go() {
  detach_variables();
  SessionStats stats;
  try {
    stats = this->stats();
  } catch (const std::bad_alloc&) {
    // Without the actors' names, then.
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return readers_ == 0; });
  last_stats_ = std::move(stats);
  finish_rest(lock);
  std::shared_ptr<actors::Runner> runner = std::move(runner_);
  const auto variables = std::move(variables_);
  lock.unlock();
  runner.reset();
  port_memory_->clear();
  loaded_->arenas.clear();
  loaded_->kernels.clear();
  loaded_->variables.clear();
  loaded_->packed.clear();
  loaded_->files.clear();
  loaded_->streams.clear();
  loaded_->lanes.clear();
  loaded_->options.functions.clear();
  loaded_->options.arenas.reset();
  lock.lock();
  pool_.clear();
  closed_ = true;
  changed_.notify_all();
}

// Callers are done with it from now on. Its actors go on to their end with what they use, which the engine keeps.
void SessionCore::abandon() {
  std::string who;
  std::vector<actors::StreamExecutor*> stuck;
  std::shared_ptr<actors::Runner> runner;
  {
    std::unique_lock lock(mutex_);
    if (closed_ || ending_) return;  // another thread is at it, and abandons it if it must
    ending_ = abandoned_ = true;
    runner = runner_;
  }
  runner->cancel();
  try {
    who = runner->wait_report(published_);
    stuck = runner->streams_at_work();
    last_stats_ = stats();
  } catch (const std::bad_alloc&) {
    // Then nobody is told who.
  }
  engine_.keep_until_ended(shared_from_this(), stuck);
  for (actors::StreamExecutor* stream : stuck) stream->give_up_lease();
  detach_variables();
  runner->stop();  // they end when they can
  {
    std::unique_lock lock(mutex_);
    finish_rest(lock);
    closed_ = true;
    ending_ = false;
    wake_room_waiters();
    changed_.notify_all();
  }
  log(LogLevel::kError, LogArea::kRuntime, "session '{}': did not end and was abandoned; its memory stays in use:\n{}",
      plan().name, who);
}

}  // namespace sluice
