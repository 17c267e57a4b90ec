#pragma once
// Holds the parts of a session and what they share: the plan as it was loaded, and one lock with all that it guards.
//
// A step passes through the parts in this order. Admission gives it a number and a place for its inputs, StepPorts
// writes them into slots, step_starts.h starts it; SinkProgress and StepPorts take its results, step_delivery.h tells
// its caller. StepBook knows the step all that time, Lifecycle whether the session takes steps at all.
//
// Invariants
//  1. `mutex` is not held while something else is waited for, except on the two conditions beside it, nor while code of
//     the user's runs.
//  2. Once the data of a source has ended, no start credit goes out until reset() has made another runner.
#include <atomic>
#include <memory>
#include <string>

#include "actors/runner.h"
#include "base/fork.h"
#include "base/interrupt.h"
#include "base/mutex.h"
#include "base/short_wait.h"
#include "runtime/session/engine.h"
#include "runtime/session/loaded_plan.h"
#include "runtime/session/parts/admission.h"
#include "runtime/session/parts/lifecycle.h"
#include "runtime/session/parts/runner_in_use.h"
#include "runtime/session/parts/sink_progress.h"
#include "runtime/session/session_shape.h"
#include "runtime/session/step_book.h"
#include "runtime/session/step_ports.h"
#include "runtime/session/turns.h"
#include "runtime/session/variable_order.h"

namespace sluice {

struct SessionState {
  // Makes a runner that has not begun. REQUIRES: `listener` outlives it.
  SessionState(Engine& its_engine, std::unique_ptr<LoadedPlan> plan, actors::RunListener& listener);

  const plan::Plan& plan() const { return loaded->plan; }
  const SessionOptions& options() const { return loaded->options; }
  std::shared_ptr<actors::Runner> make_runner(actors::RunListener& listener) const;
  // In a fork of the process that has loaded it, it has no threads.
  bool forked() const { return forks != fork_count(); }
  void check_process() const;
  // The runner, as long as callers may see what it does; else none.
  RunnerUse use_runner() SLUICE_EXCLUDES(mutex);
  // On a thread that a step may need. Stepping cannot be nested, so there every stream's thread is one.
  bool waits_for_itself() const SLUICE_REQUIRES(mutex);
  std::string wait_report() SLUICE_EXCLUDES(mutex);
  [[noreturn]] void fail_timeout(const std::string& what, Timeout timeout) SLUICE_EXCLUDES(mutex);
  // Waits on `changed` until `done`; when stepping manually, steps. False after `timeout` or when nothing can happen.
  // The lock is held again when it throws.
  template <class Done>
  bool wait_for(MutexLock& lock, ConditionVariable& on, Timeout timeout, Done&& done) SLUICE_REQUIRES(mutex);

  const uint64_t forks = fork_count();
  Engine& engine;  // not used once closed: it may be gone
  const bool manual;
  const std::unique_ptr<LoadedPlan> loaded;
  const std::shared_ptr<Turns> turns;  // null where no arena is shared

  mutable Mutex mutex;
  ConditionVariable changed;            // variables idle, finished() at telling.wake_at, closing
  ConditionVariable published_changed;  // a step has started, or none will
  RunnerInUse runner SLUICE_GUARDED_BY(mutex);
  const SessionShape shape;
  StepPorts ports;
  VariableAccesses accesses;
  std::atomic<uint64_t> callbacks{0};     // steps under way with an on_done, which runs on a thread of the engine
  std::atomic<bool> never_active{false};  // opening has failed before an actor could fire
  ShortWait short_wait;                   // of those who wait for steps

  Lifecycle lifecycle SLUICE_GUARDED_BY(mutex);
  Admission admission SLUICE_GUARDED_BY(mutex);
  SinkProgress sinks SLUICE_GUARDED_BY(mutex);
  StepBook book SLUICE_GUARDED_BY(mutex);
  // One thread at a time tells callers of steps, so that they are told in order.
  struct Telling {
    std::shared_ptr<StepState> step;  // whose callbacks run
    bool busy = false;                // a thread is at it
    uint64_t wake_at = UINT64_MAX;    // the least finished() that somebody waits for on `changed`
  };
  Telling telling SLUICE_GUARDED_BY(mutex);
};

template <class Done>
bool SessionState::wait_for(MutexLock& lock, ConditionVariable& on, Timeout timeout, Done&& done)
    SLUICE_UNCHECKED_LOCKS {  // `done` is annotated, and is called with the lock held
  if (done()) return true;
  SLUICE_CHECK_KIND(kRuntime, !waits_for_itself(),
                    "session '{}': waiting on a stream's own thread would never end; wait from another thread",
                    plan().name);
  if (!manual) return interruptible_wait(lock, on, timeout, done);
  while (!done()) {
    bool stepped = false;
    {
      const MutexUnlock meanwhile(mutex);
      stepped = engine.step();
    }
    if (!stepped) return done();
  }
  return true;
}

}  // namespace sluice
