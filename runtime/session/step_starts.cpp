#include "runtime/session/step_starts.h"

#include "actors/stream_executor.h"

namespace sluice {

void start_step(SessionState& session, uint64_t step) {
  session.admission.publish(step);
  if (!session.lifecycle.data_ended()) session.runner.get()->start(1);
  session.published_changed.notify_all();
  session.admission.offer_room();
}

void start_from_backlog(SessionState& session) {
  if (!session.ports.has_backlog()) return;
  MutexLock lock(session.mutex);
  if (!session.admission.begin_emptying_backlog()) return;
  while (session.admission.backlog_can_start() && !session.lifecycle.cancelled() && !session.lifecycle.data_ended()) {
    const uint64_t step = session.admission.published();
    actors::Runner& runner = *session.runner.get();
    lock.unlock();
    copy_or_fail(session, step, [&] { session.ports.copy_in_from_backlog(step, runner); });
    session.ports.put(step, runner);
    {
      const actors::WakeLater after_the_lock;
      const MutexLock starting(session.mutex);
      if (!session.lifecycle.abandoned()) {
        session.admission.take_from_backlog(step);
        start_step(session, step);
      }
    }
    lock.lock();
    if (session.lifecycle.abandoned()) break;
  }
  session.admission.end_emptying_backlog();
  session.published_changed.notify_all();
}

}  // namespace sluice
