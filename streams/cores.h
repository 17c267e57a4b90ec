#pragma once
// How many cores this process may compute on, and which.
#include <vector>

namespace sluice {

// SLUICE_CORES when set, else the cores this process is allowed to run on. Throws kValue when SLUICE_CORES is not a
// positive number.
int machine_cores();
// Whether the calling thread may run on this processor.
bool may_run_on(int cpu);
// Keeps the calling thread, and threads it starts from now on, to these processors. REQUIRES: it may run on them.
void run_on(const std::vector<int>& cpus);

}  // namespace sluice
