#include "runtime/session/session_core.h"

#include <algorithm>

#include "actors/node.h"
#include "actors/stream_executor.h"
#include "base/files/spill_file.h"
#include "plan/record/recording.h"
#include "runtime/session/deadlines.h"
#include "runtime/session/session_report.h"
#include "runtime/session/step_starts.h"

namespace sluice {

std::vector<PortInfo> SessionCore::inputs() const {
  std::vector<PortInfo> infos;
  for (const Ports::Input& port : state_.ports.ports().inputs) infos.push_back(port.info);
  return infos;
}

// Whoever shares its arenas takes turns with it. Empty where nobody does, and where it would have to be waited for.
Turns::Inside SessionCore::take_turn(Timeout timeout, bool try_only) {
  return state_.turns == nullptr ? Turns::Inside() : state_.turns->enter(shared_from_this(), timeout, try_only);
}

bool SessionCore::at_rest() const {
  const MutexLock lock(state_.mutex);
  return state_.admission.in_flight() == 0 && !state_.lifecycle.abandoned();
}

// The errors of its steps are its own callers' business.
void SessionCore::come_to_rest(Timeout timeout) {
  wait_finished(state_, std::min(timeout, wait_timeout()));
  MutexLock lock(state_.mutex);
  const bool abandoned = state_.lifecycle.abandoned();
  lock.unlock();
  SLUICE_CHECK_KIND(kRuntime, !abandoned || actors_ended(),
                    "session '{}': was abandoned in a kernel that has not returned and uses the arenas it shares; load "
                    "others with arenas of their own",
                    plan().name);
}

void SessionCore::wait_for_others() {
  MutexLock lock(state_.mutex);
  const auto variables = variables_;
  lock.unlock();
  if (variables != nullptr) variables->wait_for_others(this);
}

// A caller that is no stream leaves the cores to the threads that compute.
void SessionCore::leave_team() const {
  if (state_.shape.computes_elsewhere && actors::StreamExecutor::current() == nullptr)
    state_.engine.workers().leave_team(state_.shape.computes_long);
}

// Results of states that nobody uses any more go back to where they came from. They go without the lock: memory that
// callers have handed over goes as they said.
void SessionCore::let_go_of_results() {
  const auto next = [&] {
    const MutexLock lock(state_.mutex);
    return state_.book.take_result(
        [&](const StepState& state, size_t output) { return state_.ports.is_lent(state, output); });
  };
  while (next() != nullptr) {
  }
}

// Waits for its turn and for room, or until there will be none. False after `timeout`.
bool SessionCore::wait_for_room(MutexLock& lock, int priority, Timeout timeout) {
  Admission& admission = state_.admission;
  if (!state_.lifecycle.takes_steps() || admission.may_enter(priority)) return true;
  Admission::Waiter self(priority);
  admission.stand_in_line(self);
  bool room = false;
  try {
    room = state_.wait_for(lock, self.changed, timeout, [&]() SLUICE_REQUIRES(state_.mutex) {
      return !state_.lifecycle.takes_steps() || admission.may_enter(self);
    });
  } catch (...) {
    admission.leave_line(self, false);
    throw;
  }
  admission.leave_line(self, room);
  return room;
}

// The state of the step that enters next, with all memory that it needs.
std::shared_ptr<StepState> SessionCore::new_state(const StepCall& call, std::span<const InputTensor> inputs) {
  std::shared_ptr<StepState> state;
  try {
    state = state_.book.unused_state();
    if (state == nullptr) state = state_.book.new_state(weak_from_this());
    state->reset(state_.admission.submitted());
    state->tag = call.tag;
    state->on_done = call.on_done;
    state_.ports.make_results(*state, call);
    if (call.deadline != kNoDeadline) state_.engine.deadlines().watch(call.deadline, state);
    state_.ports.accept(state_.admission.submitted(), inputs);
  } catch (const Error& error) {
    if (state != nullptr) state->on_done = nullptr;
    if (error.kind() != ErrorKind::kMemory) throw;
    fail(ErrorKind::kMemory, "plan '{}': inputs and results of a step: {}", plan().name, error.what());
  }
  return state;
}

// Gives a step its number once there is room. Nothing where there is none, and `try_only`.
std::optional<SessionCore::Entered> SessionCore::enter(std::span<const InputTensor> inputs, const StepCall& call,
                                                       Timeout left, Timeout timeout, bool try_only) {
  Admission& admission = state_.admission;
  MutexLock lock(state_.mutex);
  if (!admission.may_enter(call.priority) && try_only) {
    // Once no step is in flight, slots of inputs are on their way back; that takes microseconds.
    if (admission.in_flight() > 0) return std::nullopt;
    left = std::chrono::milliseconds(20);
  }
  if (!wait_for_room(lock, call.priority, left)) {
    lock.unlock();
    if (try_only) return std::nullopt;
    state_.fail_timeout(fmt::format("no room for another step, with {} in flight,", state_.shape.max_in_flight),
                        timeout);
  }
  state_.lifecycle.check_takes_steps(admission.submitted());
  Entered entered{new_state(call, inputs)};
  if (entered.state->on_done) ++state_.callbacks;
  entered.step = admission.enter();
  variables_->count_writes();
  state_.book.enter(entered.step, entered.state);
  entered.runner = state_.runner.get().get();
  entered.has_slots = admission.has_slots(entered.step);
  admission.offer_room();
  return entered;
}

std::optional<StepHandle> SessionCore::submit(std::span<const InputTensor> inputs, Timeout timeout, bool try_only,
                                              const StepCall& call) {
  state_.check_process();
  StepPorts& ports = state_.ports;
  ports.check_inputs(inputs);
  ports.check_outputs(call.outputs);
  {
    const MutexLock lock(state_.mutex, kLockSoon);  // a stream thread may just be answering the step before
    state_.lifecycle.check_takes_steps(state_.admission.submitted());
  }
  if (call.deadline != kNoDeadline) {
    check_may_cancel("a deadline");
    timeout = std::min(timeout, std::max(Timeout::zero(), Timeout(call.deadline - std::chrono::steady_clock::now())));
  }
  const Deadline deadline(timeout);
  const Turns::Inside turn = take_turn(timeout, try_only);
  if (state_.turns != nullptr && !turn) return std::nullopt;
  wait_for_others();
  leave_team();
  if (lends_outputs_) let_go_of_results();
  if (!call.outputs.empty()) lends_outputs_ = true;
  std::optional<Entered> entered = enter(inputs, call, deadline.left(), timeout, try_only);
  if (!entered) return std::nullopt;
  const uint64_t step = entered->step;
  if (entered->has_slots) {
    copy_or_fail(state_, step, [&] { ports.copy_in(step, inputs, *entered->runner); });
    ports.put(step, *entered->runner);
    const actors::WakeLater after_the_lock;
    MutexLock lock(state_.mutex);
    state_.published_changed.wait(lock,
                                  [&]() SLUICE_REQUIRES(state_.mutex) { return state_.admission.published() == step; });
    start_step(state_, step);
  } else {
    ports.put_in_backlog(step, inputs);
    copy_or_fail(state_, step, [&] { ports.fill(step, inputs); });
    const MutexLock lock(state_.mutex);
    state_.admission.put_in_backlog(step);
  }
  start_from_backlog(state_);
  return StepHandle(std::move(entered->state));
}

void SessionCore::start(uint64_t n) {
  SLUICE_CHECK(plan().inputs.empty(), "session '{}': start() without inputs: the plan takes {}; submit them",
               plan().name, plan().inputs.size());
  state_.check_process();
  Admission& admission = state_.admission;
  {
    const MutexLock lock(state_.mutex);
    state_.lifecycle.check_takes_steps(admission.submitted());
  }
  const Turns::Inside turn = take_turn(submit_timeout(), false);
  wait_for_others();
  leave_team();
  const actors::WakeLater after_the_lock;
  MutexLock lock(state_.mutex);
  state_.lifecycle.check_takes_steps(admission.submitted());
  state_.published_changed.wait(lock, [&]() SLUICE_REQUIRES(state_.mutex) {
    return admission.all_published() || state_.lifecycle.cancelled() || state_.lifecycle.data_ended();
  });
  state_.lifecycle.check_takes_steps(admission.submitted());
  admission.enter_started(n);
  variables_->count_writes();
  state_.runner.get()->start(n);
}

void SessionCore::check_may_cancel(const char* what) const {
  SLUICE_CHECK_KIND(kUnsupported, state_.loaded->world == nullptr,
                    "session '{}': {} of a step that other ranks take part in; stop the session on all of them",
                    plan().name, what);
}

bool SessionCore::cancel_step(StepState& state) {
  state_.check_process();
  check_may_cancel("cancel()");
  const Status cancelled = {ErrorKind::kCancelled,
                            fmt::format("session '{}': step {}: cancelled by its caller", plan().name, state.step)};
  return give_up(state_, state, state.use, tagged(cancelled, state.tag));
}

void SessionCore::wait_all(Timeout timeout) {
  wait_finished(state_, timeout);
  if (const RunnerUse runner = state_.use_runner()) runner->take_unseen_failure().throw_if_error();
  MutexLock lock(state_.mutex);
  const Status late = state_.book.take_late_failure();
  lock.unlock();
  late.throw_if_error();
}

bool SessionCore::has_room() const {
  const MutexLock lock(state_.mutex);
  return state_.lifecycle.takes_steps() && state_.admission.may_enter(0);
}

SessionStats SessionCore::stats() {
  state_.check_process();
  MutexLock lock(state_.mutex);
  if (state_.runner.get() == nullptr || state_.lifecycle.closed()) return last_stats_;
  SessionStats stats;
  stats.submitted = state_.admission.submitted();
  stats.finished = state_.admission.finished();
  stats.failed = state_.book.failed();
  stats.in_flight = static_cast<int>(state_.admission.in_flight());
  stats.max_in_flight = state_.admission.max_in_flight();
  stats.waiting = static_cast<int>(state_.admission.waiting());
  stats.input_copies = state_.ports.input_copies();
  stats.output_copies = state_.ports.output_copies();
  const RunnerUse runner(state_.runner);
  lock.unlock();
  const LoadedPlan& loaded = *state_.loaded;
  if (loaded.spill_file != nullptr) {
    stats.spilled = loaded.spill_file->bytes_written();
    stats.fetched = loaded.spill_file->bytes_read();
  }
  add_counters(stats, plan(), memory(), *runner, loaded.streams, loaded.bindings.kernels);
  return stats;
}

std::optional<plan::LiveSession> SessionCore::live_state() {
  if (state_.forked()) return std::nullopt;
  MutexLock lock(state_.mutex);
  if (state_.runner.get() == nullptr || state_.lifecycle.closed()) return std::nullopt;
  plan::LiveSession live;
  live.name = plan().name;
  live.submitted = state_.admission.submitted();
  live.finished = state_.admission.finished();
  live.failed = state_.book.failed();
  live.in_flight = state_.admission.in_flight();
  live.max_in_flight = static_cast<uint64_t>(state_.admission.max_in_flight());
  live.waiting = state_.admission.waiting();
  const RunnerUse runner(state_.runner);
  lock.unlock();
  if (state_.loaded->world != nullptr) live.rank = state_.loaded->world->rank();
  for (const SessionMemory::Space& space : memory().spaces) live.bytes += space.total();
  static_assert(plan::kLiveIdle == actors::Node::kIdle && plan::kLiveDevice == actors::Node::kWaiting &&
                plan::kLiveCores == actors::Node::kLeasing);
  for (const actors::Node* node : runner->nodes()) {
    live.firings.push_back(node->firings());
    live.busy_ns.push_back(static_cast<uint64_t>(node->busy_ns()));
    live.now.push_back(node->activity());
  }
  return live;
}

SessionMemory SessionCore::memory() const {
  const LoadedPlan& loaded = *state_.loaded;
  return memory_of(plan(), loaded.arena_shared, loaded.variable_mapped, state_.ports, state_.shape.max_in_flight);
}

void SessionCore::set_trace(bool on, bool wait) {
  const RunnerUse runner = state_.use_runner();
  if (!runner) return;
  const bool was_on = runner->flag(actors::kRunTraced);
  runner->set_trace(on, &trace_bell_);
  if (was_on && !on && wait && !runner->end_trace(wait_timeout()))
    state_.fail_timeout("a firing that is traced is not finished", wait_timeout());
}

bool SessionCore::has_fired(uint64_t steps) {
  const RunnerUse runner = state_.use_runner();
  return !runner || runner->has_fired(steps);
}

Trace SessionCore::take_trace_by_stream() {
  const RunnerUse runner = state_.use_runner();
  return runner ? runner->take_trace() : Trace();
}

Trace SessionCore::take_trace() {
  Trace trace = take_trace_by_stream();
  std::stable_sort(trace.events.begin(), trace.events.end(),
                   [](const TraceEvent& a, const TraceEvent& b) { return a.begin_ns < b.begin_ns; });
  return trace;
}

TraceNames SessionCore::trace_names() const {
  TraceNames names = sluice::plan::trace_names_of(plan());
  if (state_.loaded->world != nullptr) names.rank = state_.loaded->world->rank();
  return names;
}

}  // namespace sluice
