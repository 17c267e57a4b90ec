#pragma once
// How many cores this process may compute on.

namespace sluice {

// SLUICE_CORES when set, else the cores this process is allowed to run on. Throws kValue when SLUICE_CORES is not a
// positive number.
int machine_cores();

}  // namespace sluice
