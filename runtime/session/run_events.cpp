#include "runtime/session/run_events.h"

#include "base/log.h"
#include "runtime/session/step_delivery.h"
#include "runtime/session/step_starts.h"

namespace sluice {

void RunEvents::on_sink(int actor, uint64_t step, const Status& status, void* const* outputs) {
  MutexLock lock(s_.mutex, kLockSoon);
  const SinkProgress::Delivery delivery = s_.sinks.fire(actor, step);
  actors::Runner& runner = *s_.runner.get();
  for (uint64_t answered = delivery.first; answered <= delivery.last; ++answered) {
    const std::shared_ptr<StepState> state = s_.book.state(answered);
    if (state == nullptr || !state->pending.ok()) continue;
    if (!status.ok()) {
      state->pending = status;
      continue;
    }
    lock.unlock();
    const StepPorts::SinkFiring firing{s_.shape.outputs[actor], outputs, delivery.firing, delivery.part};
    const Status brought = s_.ports.bring_out(*state, firing, runner);
    lock.lock();
    if (state->pending.ok()) state->pending = brought;
  }
  s_.sinks.deliver(actor, delivery);
  StepState* const last = finish_delivered(s_);
  lock.unlock();
  if (last != nullptr) last->tell();
}

// What was submitted comes to its end, and no more is.
void RunEvents::on_data_end() {
  const MutexLock lock(s_.mutex);
  s_.lifecycle.end_data();
  s_.runner.get()->stop();
  s_.admission.wake_all();
  s_.published_changed.notify_all();
  s_.changed.notify_all();
}

// In a session that goes on, the steps of which this sink has not given all never will be, for want of data.
void RunEvents::on_sink_end(int actor) {
  MutexLock lock(s_.mutex);
  if (s_.lifecycle.cancelled()) return;
  for (uint64_t step = s_.sinks.end(actor); step < s_.admission.submitted(); ++step) {
    const std::shared_ptr<StepState>& state = s_.book.state(step);
    if (state != nullptr && state->pending.ok()) state->pending = s_.lifecycle.end_of_data(step);
  }
  StepState* const last = finish_delivered(s_);
  lock.unlock();
  if (last != nullptr) last->tell();
}

void RunEvents::on_input_slots(int reg, uint64_t writable) {
  const auto quota = static_cast<uint64_t>(s_.plan().registers[reg].quota);
  {
    // The storage may be the last of what callers have handed over, so it goes without the lock.
    const std::shared_ptr<Storage> done =
        writable > quota ? s_.ports.memory().release(reg, writable - quota - 1) : nullptr;
    const MutexLock lock(s_.mutex, kLockSoon);
    s_.admission.set_writable(reg, writable);
  }
  start_from_backlog(s_);
}

void RunEvents::on_failure(uint64_t step, const Status& status) { fail_step(s_, step, status); }

void RunEvents::on_missed_collective(int kernel, const Status& status) {
  s_.loaded->communicators.at(s_.plan().kernels[kernel].collective)->miss(status.message());
}

void RunEvents::on_variables_done(bool writes) {
  if (!s_.accesses.add_done(writes)) return;
  const MutexLock lock(s_.mutex);
  s_.changed.notify_all();
}

void RunEvents::on_actor_down(int actor, const std::string& reason) {
  const MutexLock lock(s_.mutex);
  if (s_.lifecycle.cancelled() || s_.runner.get() == nullptr) return;
  s_.lifecycle.fail(
      {ErrorKind::kRuntime, fmt::format("session '{}': actor '{}' was ended from outside: {}; load the plan again",
                                        s_.plan().name, s_.plan().actors[actor].name, reason)});
  s_.runner.get()->cancel();
  s_.admission.wake_all();
}

uint64_t RunEvents::firings() const {
  const MutexLock lock(s_.mutex);
  return s_.runner.get() == nullptr ? 0 : s_.runner.get()->total_firings();
}

bool RunEvents::busy() const {
  const MutexLock lock(s_.mutex);
  return s_.admission.in_flight() > 0;
}

void RunEvents::on_stall(std::chrono::milliseconds idle) {
  log(LogLevel::kWarn, LogArea::kRuntime, "session '{}': nothing has fired for {} ms:\n{}", s_.plan().name,
      idle.count(), s_.wait_report());
}

}  // namespace sluice
