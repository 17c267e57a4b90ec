#include "streams/sim/sim_event.h"

namespace sluice {

void SimEvent::wait_for(uint32_t recording) const {
  for (uint32_t now = completed_.load(std::memory_order_acquire); static_cast<int32_t>(now - recording) < 0;
       now = completed_.load(std::memory_order_acquire)) {
    completed_.wait(now, std::memory_order_acquire);
  }
}

Status SimEvent::wait() {
  wait_for(recorded_.load(std::memory_order_acquire));
  return status_;
}

}  // namespace sluice
