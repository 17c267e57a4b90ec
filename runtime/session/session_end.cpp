// How a session begins and ends: cancelled and drained, or, when a kernel does not return, abandoned.
#include "actors/stream_executor.h"
#include "base/log.h"
#include "plan/ranks.h"
#include "runtime/session/load.h"
#include "runtime/session/session_core.h"
#include "runtime/session/step_delivery.h"

namespace sluice {

void SessionCore::begin(actors::Runner& runner, bool traced, bool first) {
  try {
    control_ = state_.engine.actor_system().register_run(events_, runner.nodes());
    if (first) state_.engine.adopt(shared_from_this());
    if (traced) runner.set_trace(true, &trace_bell_);
    runner.activate(wait_timeout());
  } catch (...) {
    state_.never_active = !runner.activated();
    throw;
  }
}

void SessionCore::open() {
  LoadedPlan& loaded = *state_.loaded;
  const auto variables = std::make_shared<const BoundVariables>(
      std::move(loaded.variables), std::move(loaded.variable_written), std::move(loaded.packed));
  MutexLock lock(state_.mutex);
  variables_ = variables;
  actors::Runner& runner = *state_.runner.get();
  lock.unlock();
  variables->attach(weak_from_this());
  begin(runner, loaded.options.trace, true);
  add_live_source(shared_from_this());
}

// Whoever opened it has ended it. An abandoned session is let go by its engine, once its actors have ended. Its runner
// goes first: devices may still work on the last firings, with memory of ports and variables.
SessionCore::~SessionCore() {
  MutexLock lock(state_.mutex);
  const std::shared_ptr<actors::Runner> runner = state_.runner.replace(nullptr);
  lock.unlock();
}

void SessionCore::cancel() {
  const MutexLock lock(state_.mutex);
  if (!state_.lifecycle.cancel()) return;
  // Other ranks may still wait for the rest of steps that are finished here.
  if (state_.loaded->world == nullptr || state_.admission.in_flight() > 0) state_.runner.get()->cancel();
  state_.admission.wake_all();
  state_.published_changed.notify_all();
}

void SessionCore::stop(Timeout timeout) {
  state_.check_process();
  if (close(timeout)) return;
  SLUICE_CHECK_KIND(kRuntime, !on_own_thread(),
                    "session '{}': stop() on a stream's own thread would never end; stop it from another thread",
                    plan().name);
  state_.fail_timeout("is being stopped and still not at its end", timeout);
}

void SessionCore::end(Timeout timeout) noexcept {
  if (state_.forked()) {  // its locks, streams and actors are as they were at that moment, for ever
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
  const MutexLock lock(state_.mutex);
  return !state_.lifecycle.closed() && state_.runner.get() != nullptr && state_.runner.get()->on_own_thread();
}

bool SessionCore::actors_ended() const {
  const MutexLock lock(state_.mutex);
  return state_.runner.unused() && (state_.runner.get() == nullptr || state_.runner.get()->wait_done(Timeout::zero()));
}

bool SessionCore::close(Timeout timeout) {
  const Deadline deadline(timeout);
  cancel();
  const bool own_thread = on_own_thread();
  Lifecycle& lifecycle = state_.lifecycle;
  MutexLock lock(state_.mutex);
  if (lifecycle.closed()) return true;
  if (own_thread) return false;
  const auto is_free = [&]() SLUICE_REQUIRES(state_.mutex) { return !lifecycle.ending() || lifecycle.closed(); };
  if (!interruptible_wait(lock, state_.changed, deadline.left(), is_free)) return false;
  if (lifecycle.closed()) return true;
  lifecycle.begin_ending();
  bool ended = false;
  try {
    ended = interruptible_wait(lock, state_.published_changed, deadline.left(),
                               [&]() SLUICE_REQUIRES(state_.mutex) { return state_.admission.none_is_entering(); });
    if (ended) {
      actors::Runner& runner = *state_.runner.get();
      const MutexUnlock meanwhile(state_.mutex);
      ended = end_actors(runner, deadline.left());
      if (ended) let_go();
    }
  } catch (...) {
    lifecycle.finish_ending();
    state_.changed.notify_all();
    throw;
  }
  lifecycle.finish_ending();
  state_.changed.notify_all();
  return ended;
}

// REQUIRES: this thread is ending the session, so that the runner stays.
bool SessionCore::end_actors(actors::Runner& runner, Timeout timeout) {
  if (control_ == nullptr || state_.never_active) return true;
  runner.stop();
  return drain(state_, runner, timeout);
}

// All steps that were submitted end, and all actors with them; then new ones begin.
void SessionCore::reset() {
  state_.check_process();
  SLUICE_CHECK_KIND(kUnsupported, !plan::together(plan()),
                    "session '{}': reset() of a plan of several ranks; load it again on all of them", plan().name);
  const Deadline deadline(wait_timeout());
  Lifecycle& lifecycle = state_.lifecycle;
  Admission& admission = state_.admission;
  MutexLock lock(state_.mutex);
  SLUICE_CHECK_KIND(kRuntime, !state_.waits_for_itself(),
                    "session '{}': reset() on a stream's own thread would never end; call it from another thread",
                    plan().name);
  const auto is_free = [&]() SLUICE_REQUIRES(state_.mutex) { return !lifecycle.ending(); };
  bool ended = interruptible_wait(lock, state_.changed, deadline.left(), is_free);
  lifecycle.failure().throw_if_error();
  lifecycle.check_not_cancelled();
  if (ended) {
    lifecycle.begin_reset();
    admission.wake_all();
    try {
      ended = state_.wait_for(lock, state_.published_changed, deadline.left(), [&]() SLUICE_REQUIRES(state_.mutex) {
        if (lifecycle.cancelled()) return true;
        if (lifecycle.data_ended()) return admission.none_is_entering();
        return admission.all_published() && !admission.emptying_backlog();
      });
      lifecycle.check_not_cancelled();
      if (ended) {
        lifecycle.end_data();  // if renewing fails, reset() may be tried again
        actors::Runner& runner = *state_.runner.get();
        runner.stop();
        const MutexUnlock meanwhile(state_.mutex);
        ended = drain(state_, runner, deadline.left());
        if (ended) renew();
      }
    } catch (...) {
      lifecycle.finish_ending();
      state_.changed.notify_all();
      throw;
    }
    lifecycle.finish_ending();
    state_.changed.notify_all();
  }
  lock.unlock();
  if (!ended) state_.fail_timeout("is being reset and still at work", wait_timeout());
}

// REQUIRES: all actors have ended; this thread is resetting the session, so that the runner stays and nobody submits.
void SessionCore::renew() {
  const MutexLock quotas(quotas_mutex_);
  std::shared_ptr<actors::Runner> runner = state_.make_runner(events_);
  actors::Runner& fresh = *runner;
  for (size_t r = 0; r < quotas_.size(); ++r) fresh.set_quota(static_cast<int>(r), quotas_[r], kNoTimeout);
  synchronize_streams(state_);
  clear_initial_tokens(state_.engine, *state_.loaded);
  state_.ports.memory().clear_inputs();
  state_.ports.memory().bind(fresh);
  MutexLock lock(state_.mutex);
  state_.changed.wait(lock, [&]() SLUICE_REQUIRES(state_.mutex) { return state_.runner.unused(); });
  state_.lifecycle.check_not_cancelled();
  const bool traced = state_.runner.get()->flag(actors::kRunTraced);
  runner = state_.runner.replace(std::move(runner));
  state_.lifecycle.count_reset();
  state_.admission.reset();
  state_.sinks.reset();
  state_.book.reset();
  state_.accesses.reset();
  lock.unlock();
  state_.engine.actor_system().unregister_run(std::exchange(control_, nullptr));
  runner.reset();
  try {
    begin(fresh, traced, false);
  } catch (...) {
    const MutexLock failing(state_.mutex);
    state_.lifecycle.fail(Status::from_current_exception());
    throw;
  }
  lock.lock();
  state_.lifecycle.begin_anew();
}

// Others no longer wait for its accesses, nor watch over its actors.
void SessionCore::detach() {
  if (control_ != nullptr) state_.engine.actor_system().unregister_run(control_);
  control_.reset();
  MutexLock lock(state_.mutex);
  const auto variables = variables_;
  lock.unlock();
  if (variables != nullptr) variables->detach(this);
}

// Finishes what is under way. From now on callers see these counters.
void SessionCore::finish_last(SessionStats stats) {
  last_stats_ = std::move(stats);
  finish_rest(state_);
  last_stats_.submitted = state_.admission.submitted();
  last_stats_.finished = state_.admission.finished();
  last_stats_.failed = state_.book.failed();
  last_stats_.in_flight = 0;
}

void SessionCore::let_go() {
  detach();
  SessionStats stats;
  try {
    stats = this->stats();
  } catch (const std::bad_alloc&) {
    // Without the actors' names, then.
  }
  MutexLock lock(state_.mutex);
  state_.changed.wait(lock, [&]() SLUICE_REQUIRES(state_.mutex) { return state_.runner.unused(); });
  finish_last(std::move(stats));
  std::shared_ptr<actors::Runner> runner = state_.runner.replace(nullptr);
  auto variables = std::move(variables_);
  lock.unlock();
  runner.reset();
  state_.ports.memory().clear();
  LoadedPlan& loaded = *state_.loaded;
  loaded.arenas.clear();
  loaded.kernels.clear();
  loaded.spill_file.reset();
  variables.reset();
  loaded.files.clear();
  loaded.streams.clear();
  loaded.lanes.clear();
  loaded.options.functions.clear();
  loaded.options.arenas.reset();
  lock.lock();
  state_.book.clear_pool();
  state_.lifecycle.close();
  state_.changed.notify_all();
}

// Callers are done with it from now on. Its actors go on to their end with what they use, which the engine keeps.
void SessionCore::abandon() {
  MutexLock lock(state_.mutex);
  if (state_.lifecycle.closed() || state_.lifecycle.ending())
    return;  // another thread is at it, and abandons it if it must
  state_.lifecycle.abandon();
  const std::shared_ptr<actors::Runner> runner = state_.runner.get();
  const uint64_t published = state_.admission.published();
  lock.unlock();
  runner->cancel();
  std::string who;
  std::vector<actors::StreamExecutor*> stuck;
  SessionStats stats;
  try {
    who = runner->wait_report(published);
    stuck = runner->streams_at_work();
    stats = this->stats();
  } catch (const std::bad_alloc&) {
    // Then nobody is told who.
  }
  state_.engine.keep_until_ended(shared_from_this(), stuck);
  for (actors::StreamExecutor* stream : stuck) stream->give_up_lease();
  detach();
  runner->stop();  // they end when they can
  lock.lock();
  finish_last(std::move(stats));
  state_.lifecycle.close();
  state_.lifecycle.finish_ending();
  state_.admission.wake_all();
  state_.changed.notify_all();
  lock.unlock();
  log(LogLevel::kError, LogArea::kRuntime, "session '{}': did not end and was abandoned; its memory stays in use:\n{}",
      plan().name, who);
}

}  // namespace sluice
