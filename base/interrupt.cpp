#include "base/interrupt.h"

#include <atomic>

namespace sluice {
namespace {

std::atomic<InterruptCheck> installed{nullptr};
thread_local int uninterrupted = 0;

}  // namespace

void set_interrupt_check(InterruptCheck check) { installed.store(check, std::memory_order_release); }

bool interruptible() { return installed.load(std::memory_order_acquire) != nullptr; }

UninterruptedScope::UninterruptedScope() { ++uninterrupted; }
UninterruptedScope::~UninterruptedScope() { --uninterrupted; }

void check_interrupt() {
  if (uninterrupted > 0) return;
  if (const InterruptCheck check = installed.load(std::memory_order_acquire)) check();
}

}  // namespace sluice
