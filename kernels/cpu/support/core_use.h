#pragma once
// Tells who used the processors, as the system counts it. Reading allocates nothing and takes some microseconds.
#include <cstdint>

namespace sluice {

// The times of the calling thread, since it began.
struct ThreadTime {
  int64_t had_ns = 0, waited_ns = 0;  // a processor; for one, able to run

  // False where the system does not tell.
  static bool read(ThreadTime* time);
};

// The use of the processors that this process may run on, since some time before.
struct CoreUse {
  int64_t all_ns = 0;     // that there was, idle or not
  int64_t others_ns = 0;  // that was used, also by the machine beneath this one, and not by this process

  // False where the system does not tell. Counted in ticks of 10 ms on most systems.
  static bool read(CoreUse* use);
};

}  // namespace sluice
