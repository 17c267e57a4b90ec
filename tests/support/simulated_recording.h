#pragma once
// Runs in virtual time as recordings, and plans whose registers need not be written.
#include "plan/record/simulated.h"

namespace sluice::plan {

// Makes its registers carry no bytes, so that no kernel has to write them.
inline void as_control(Plan& plan) {
  for (Register& r : plan.registers) {
    r.bytes = 0;
    r.slots.clear();
  }
}

}  // namespace sluice::plan
