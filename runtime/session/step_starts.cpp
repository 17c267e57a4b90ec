#include "runtime/session/step_starts.h"

#include "actors/stream_executor.h"

namespace sluice {

void start_step(SessionState& s, uint64_t step) {
  s.admission.publish(step);
  if (!s.lifecycle.data_ended()) s.runner.get()->start(1);
  s.published_changed.notify_all();
}

void start_from_backlog(SessionState& s) {
  if (!s.ports.has_backlog()) return;
  MutexLock lock(s.mutex);
  if (!s.admission.begin_emptying_backlog()) return;
  while (s.admission.backlog_can_start() && !s.lifecycle.cancelled() && !s.lifecycle.data_ended()) {
    const uint64_t step = s.admission.published();
    actors::Runner& runner = *s.runner.get();
    lock.unlock();
    copy_or_fail(s, step, [&] { s.ports.copy_in_from_backlog(step, runner); });
    s.ports.put(step, runner);
    {
      const actors::WakeLater after_the_lock;
      const MutexLock starting(s.mutex);
      if (!s.lifecycle.abandoned()) start_step(s, step);
    }
    lock.lock();
    if (s.lifecycle.abandoned()) break;
  }
  s.admission.end_emptying_backlog();
  s.published_changed.notify_all();
}

}  // namespace sluice
