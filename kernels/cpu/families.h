#pragma once
// One function per op family, as families.inc lists them; add_cpu_kernels() calls them all.
namespace sluice {

class KernelTable;

}  // namespace sluice

namespace sluice::cpu {

#define FAMILY(FUNCTION) void FUNCTION(KernelTable& table);
#include "kernels/cpu/families.inc"
#undef FAMILY

}  // namespace sluice::cpu
