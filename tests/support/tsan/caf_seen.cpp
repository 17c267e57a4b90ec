// Shows ThreadSanitizer how CAF hands messages and actors from thread to thread. Debian's libcaf_core is not
// instrumented, so its atomics are unseen and all that a message carries would be reported. These functions stand in
// front of the library's, by their names, and say what orders what; then they call the library's.
#include <caf/blocking_actor.hpp>
#include <caf/scheduled_actor.hpp>

#include "next_symbol.h"

namespace caf {

using sluice::tsan::acquire;
using sluice::tsan::count;
using sluice::tsan::next;
using sluice::tsan::release;

#define OF_A_MESSAGE "ESt10unique_ptrINS_15mailbox_elementENS_6detail8disposerEEPNS_14execution_unitE"

// A message, from who sends it to who handles it.
void scheduled_actor::enqueue(mailbox_element_ptr message, execution_unit* unit) {
  static const auto there = next<void(scheduled_actor*, mailbox_element_ptr, execution_unit*)>(
      "_ZN3caf15scheduled_actor7enqueue" OF_A_MESSAGE);
  release(static_cast<memory_managed*>(message.get()));
  there(this, std::move(message), unit);
}

void blocking_actor::enqueue(mailbox_element_ptr message, execution_unit* unit) {
  static const auto there =
      next<void(blocking_actor*, mailbox_element_ptr, execution_unit*)>("_ZN3caf14blocking_actor7enqueue" OF_A_MESSAGE);
  release(static_cast<memory_managed*>(message.get()));
  there(this, std::move(message), unit);
}

intrusive::task_result blocking_actor::mailbox_visitor::operator()(mailbox_element& message) {
  static const auto there = next<intrusive::task_result(mailbox_visitor*, mailbox_element&)>(
      "_ZN3caf14blocking_actor15mailbox_visitorclERNS_15mailbox_elementE");
  acquire(static_cast<memory_managed*>(&message));
  return there(this, message);
}

// An actor, from who makes it to the thread where it runs. After its start and after each message it may go on in
// another one.
void scheduled_actor::launch(execution_unit* unit, bool lazy, bool hide) {
  static const auto there = next<void(scheduled_actor*, execution_unit*, bool, bool)>(
      "_ZN3caf15scheduled_actor6launchEPNS_14execution_unitEbb");
  release(this);
  there(this, unit, lazy, hide);
}

bool scheduled_actor::activate(execution_unit* unit) {
  static const auto there =
      next<bool(scheduled_actor*, execution_unit*)>("_ZN3caf15scheduled_actor8activateEPNS_14execution_unitE");
  const bool active = there(this, unit);
  release(this);
  return active;
}

intrusive::task_result scheduled_actor::mailbox_visitor::operator()(mailbox_element& message) {
  static const auto there = next<intrusive::task_result(mailbox_visitor*, mailbox_element&)>(
      "_ZN3caf15scheduled_actor15mailbox_visitorclERNS_15mailbox_elementE");
  acquire(static_cast<memory_managed*>(&message));
  scheduled_actor* const actor = self;
  const auto result = there(this, message);
  release(actor);
  return result;
}

resumable::resume_result scheduled_actor::resume(execution_unit* unit, size_t messages) {
  static const auto there = next<resume_result(scheduled_actor*, execution_unit*, size_t)>(
      "_ZN3caf15scheduled_actor6resumeEPNS_14execution_unitEm");
  acquire(this);
  return there(this, unit, messages);
}

// Also messages that nobody has handled are destroyed.
void memory_managed::request_deletion(bool decremented) const noexcept {
  static const auto there = next<void(const memory_managed*, bool)>("_ZNK3caf14memory_managed16request_deletionEb");
  acquire(this);
  there(this, decremented);
}

// Counters of references.
void ref_counted::deref() const noexcept {
  static const auto there = next<void(const ref_counted*)>("_ZNK3caf11ref_counted5derefEv");
  count(&rc_);
  there(this);
}

void intrusive_ptr_release(actor_control_block* block) {
  static const auto there =
      next<void(actor_control_block*)>("_ZN3caf21intrusive_ptr_releaseEPNS_19actor_control_blockE");
  count(&block->strong_refs);
  there(block);
}

void intrusive_ptr_release_weak(actor_control_block* block) {
  static const auto there =
      next<void(actor_control_block*)>("_ZN3caf26intrusive_ptr_release_weakEPNS_19actor_control_blockE");
  count(&block->weak_refs);
  there(block);
}

}  // namespace caf

// A queue of the scheduler's threads makes a node here, which another thread frees: not looked at.
extern "C" {

void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);

#define SLUICE_ENQUEUE _ZN3caf9scheduler11coordinatorINS_6policy13work_stealingEE7enqueueEPNS_9resumableE
void SLUICE_ENQUEUE(void* self, caf::resumable* job) {
  static const auto there = sluice::tsan::next<void(void*, caf::resumable*)>(
      "_ZN3caf9scheduler11coordinatorINS_6policy13work_stealingEE7enqueueEPNS_9resumableE");
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  there(self, job);
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
}

}  // extern "C"
