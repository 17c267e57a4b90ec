#pragma once
// A plan keeps these bytes on the disk between two uses (ADR 81). They are known before the first step, as its memory
// is.
#include <cstdint>
#include <string>

#include "plan/plan.h"

namespace sluice::plan {

// Whether a kernel moves a value to the disk, or from it.
inline bool moves_to_disk(const Kernel& kernel) { return kernel.op == "spill"; }
inline bool moves_from_disk(const Kernel& kernel) { return kernel.op == "fetch"; }

struct DiskPlace {
  const std::string& function;  // that moves it
  uint64_t offset = 0, bytes = 0;
};
// REQUIRES: the kernel moves a value. Throws kValue for a kernel that does not look as the compiler makes it.
DiskPlace disk_place(const Kernel& kernel);

struct Spilled {
  int values = 0;
  uint64_t bytes = 0;       // that all of them have: a micro-batch writes and reads so many
  uint64_t file_bytes = 0;  // of the file in which each has a place of its own
};
Spilled spilled(const Plan& plan);

}  // namespace sluice::plan
