#pragma once
// The floor of act.cross_stream.parked: waking a thread that sleeps in the kernel, with nothing around it.
#include <vector>

namespace sluice::bench {

// Nanoseconds from before the wake-up call to the first instruction of the woken thread, which has slept for
// `idle_us` or more; one figure per sample.
std::vector<double> futex_hops_ns(int samples, int idle_us);

}  // namespace sluice::bench
