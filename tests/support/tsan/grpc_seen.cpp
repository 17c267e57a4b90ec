// Shows ThreadSanitizer how gRPC hands calls from thread to thread, as caf_seen.cpp does for CAF: Debian's libgrpc,
// libgrpc++ and libgpr are not instrumented either.
#include <absl/synchronization/mutex.h>
#include <grpc/grpc.h>
#include <grpc/support/sync.h>
#include <sanitizer/tsan_interface.h>

#include "next_symbol.h"

using sluice::tsan::acquire;
using sluice::tsan::count;
using sluice::tsan::next;
using sluice::tsan::release;

extern "C" {

// A batch of operations, from who starts it to who is told of its end: by a queue, or by a call.
grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t n, void* tag, void* reserved) {
  static const auto there = next<decltype(grpc_call_start_batch)>("grpc_call_start_batch");
  release(tag);
  return there(call, ops, n, tag, reserved);
}

grpc_event grpc_completion_queue_next(grpc_completion_queue* queue, gpr_timespec deadline, void* reserved) {
  static const auto there = next<decltype(grpc_completion_queue_next)>("grpc_completion_queue_next");
  const grpc_event event = there(queue, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) acquire(event.tag);
  return event;
}

grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue, void* tag, gpr_timespec deadline, void* reserved) {
  static const auto there = next<decltype(grpc_completion_queue_pluck)>("grpc_completion_queue_pluck");
  const grpc_event event = there(queue, tag, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) acquire(event.tag);
  return event;
}

#define SLUICE_RUN_OF_A_TAG _ZN4grpc8internal22CallbackWithSuccessTag9StaticRunEP29grpc_completion_queue_functori
void SLUICE_RUN_OF_A_TAG(grpc_completion_queue_functor* tag, int ok) {
  static const auto there = next<void(grpc_completion_queue_functor*, int)>(
      "_ZN4grpc8internal22CallbackWithSuccessTag9StaticRunEP29grpc_completion_queue_functori");
  acquire(tag);
  there(tag, ok);
}

void grpc_call_unref(grpc_call* call) {
  static const auto there = next<decltype(grpc_call_unref)>("grpc_call_unref");
  count(call);
  there(call);
}

// The locks of its own threads, by which the end of a call comes to another one.
void gpr_mu_lock(gpr_mu* mutex) {
  static const auto there = next<decltype(gpr_mu_lock)>("gpr_mu_lock");
  there(mutex);
  acquire(mutex);
}

int gpr_mu_trylock(gpr_mu* mutex) {
  static const auto there = next<decltype(gpr_mu_trylock)>("gpr_mu_trylock");
  const int locked = there(mutex);
  if (locked != 0) acquire(mutex);
  return locked;
}

void gpr_mu_unlock(gpr_mu* mutex) {
  static const auto there = next<decltype(gpr_mu_unlock)>("gpr_mu_unlock");
  release(mutex);
  there(mutex);
}

int gpr_cv_wait(gpr_cv* changed, gpr_mu* mutex, gpr_timespec deadline) {
  static const auto there = next<decltype(gpr_cv_wait)>("gpr_cv_wait");
  release(mutex);
  const int late = there(changed, mutex, deadline);
  acquire(mutex);
  return late;
}

}  // extern "C"

// The lock of a reactor, which functions of grpc++'s headers take.
namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static const auto there = next<void(Mutex*)>("_ZN4absl7debian35Mutex4LockEv");
  there(this);
  acquire(this);
}

void Mutex::Unlock() {
  static const auto there = next<void(Mutex*)>("_ZN4absl7debian35Mutex6UnlockEv");
  release(this);
  there(this);
}

ABSL_NAMESPACE_END
}  // namespace absl
