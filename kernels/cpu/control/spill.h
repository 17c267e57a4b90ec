#pragma once
namespace sluice {

class KernelTable;

}  // namespace sluice

namespace sluice::cpu {

// spill and fetch, which call the session as host functions call the program.
void add_spill_kernels(KernelTable& table);

}  // namespace sluice::cpu
