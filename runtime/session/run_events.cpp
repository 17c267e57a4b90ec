#include "runtime/session/run_events.h"

#include "base/log.h"
#include "runtime/session/step_delivery.h"
#include "runtime/session/step_starts.h"

namespace sluice {

void RunEvents::on_sink(int actor, uint64_t step, const Status& status, void* const* outputs) {
  MutexLock lock(session_.mutex, kLockSoon);
  const SinkProgress::Delivery delivery = session_.sinks.fire(actor, step);
  actors::Runner& runner = *session_.runner.get();
  for (uint64_t answered = delivery.first; answered <= delivery.last; ++answered) {
    const std::shared_ptr<StepState> state = session_.book.state(answered);
    if (state == nullptr || !state->pending.ok()) continue;
    if (!status.ok()) {
      state->pending = status;
      continue;
    }
    lock.unlock();
    const StepPorts::SinkFiring firing{session_.shape.outputs[actor], outputs, delivery.firing, delivery.part};
    const Status brought = session_.ports.bring_out(*state, firing, runner);
    lock.lock();
    if (state->pending.ok()) state->pending = brought;
  }
  session_.sinks.deliver(actor, delivery);
  StepState* const last = finish_delivered(session_);
  lock.unlock();
  if (last != nullptr) last->tell();
}

// Steps that were submitted come to their end, and no more are submitted.
void RunEvents::on_data_end() {
  const MutexLock lock(session_.mutex);
  session_.lifecycle.end_data();
  session_.runner.get()->stop();
  session_.admission.wake_all();
  session_.published_changed.notify_all();
  session_.changed.notify_all();
}

// In a session that goes on, the steps of which this sink has not given all never will be, for want of data.
void RunEvents::on_sink_end(int actor) {
  MutexLock lock(session_.mutex);
  if (session_.lifecycle.cancelled()) return;
  for (uint64_t step = session_.sinks.end(actor); step < session_.admission.submitted(); ++step) {
    const std::shared_ptr<StepState>& state = session_.book.state(step);
    if (state != nullptr && state->pending.ok()) state->pending = session_.lifecycle.end_of_data(step);
  }
  StepState* const last = finish_delivered(session_);
  lock.unlock();
  if (last != nullptr) last->tell();
}

void RunEvents::on_input_slots(int reg, uint64_t writable) {
  const auto quota = static_cast<uint64_t>(session_.plan().registers[reg].quota);
  // The storage may be the last of what callers have handed over, so it goes without the lock.
  const std::shared_ptr<Storage> done =
      writable > quota ? session_.ports.memory().release(reg, writable - quota - 1) : nullptr;
  {
    const MutexLock lock(session_.mutex, kLockSoon);
    session_.admission.set_writable(reg, writable);
  }
  start_from_backlog(session_);
}

void RunEvents::on_failure(uint64_t step, const Status& status) { fail_step(session_, step, status); }

void RunEvents::on_missed_collective(int kernel, const Status& status) {
  session_.loaded->communicators.at(session_.plan().kernels[kernel].collective)->miss(status.message());
}

void RunEvents::on_variables_done(bool writes) {
  if (!session_.accesses.add_done(writes)) return;
  const MutexLock lock(session_.mutex);
  session_.changed.notify_all();
}

void RunEvents::on_actor_down(int actor, const std::string& reason) {
  const MutexLock lock(session_.mutex);
  if (session_.lifecycle.cancelled() || session_.runner.get() == nullptr) return;
  session_.lifecycle.fail(
      {ErrorKind::kRuntime, fmt::format("session '{}': actor '{}' was ended from outside: {}; load the plan again",
                                        session_.plan().name, session_.plan().actors[actor].name, reason)});
  session_.runner.get()->cancel();
  session_.admission.wake_all();
}

uint64_t RunEvents::firings() const {
  const MutexLock lock(session_.mutex);
  return session_.runner.get() == nullptr ? 0 : session_.runner.get()->total_firings();
}

bool RunEvents::busy() const {
  const MutexLock lock(session_.mutex);
  return session_.admission.in_flight() > 0;
}

void RunEvents::on_stall(std::chrono::milliseconds idle) {
  log(LogLevel::kWarn, LogArea::kRuntime, "session '{}': nothing has fired for {} ms:\n{}", session_.plan().name,
      idle.count(), session_.wait_report());
}

}  // namespace sluice
