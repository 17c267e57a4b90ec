#pragma once
// The CPU's kernels, by explicit list.
namespace sluice {

class KernelTable;

void add_cpu_kernels(KernelTable& table);

}  // namespace sluice
