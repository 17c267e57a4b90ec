#pragma once
// A forecast as if it had been recorded, so that what is asked of recorded runs can be asked of a plan.
#include "plan/record/recording.h"
#include "plan/time/simulator.h"

namespace sluice::plan {

// The run in virtual time, with times in whole nanoseconds. Whatever is between the kernels of a firing is a wait for
// cores. REQUIRES: verified.
Recording simulated_recording(const Plan& plan, const SimulateOptions& options);

}  // namespace sluice::plan
