#pragma once
// The libraries that the kernels of this process stand on.
#include <string>
#include <vector>

#include "base/key.h"
#include "base/libraries.h"

namespace sluice {

// oneDNN, Highway, OpenMP.
std::vector<LibraryVersion> kernel_libraries();

// The CPU kernels are here for several instruction sets, and each part of them takes the best that the processor has.
// This keeps oneDNN and Highway to what SLUICE_MAX_ISA names: "baseline", "avx2" or "avx512". The plain loops of
// elementwise ops choose while the library is loaded, whatever it says. Before any kernel is made; again it does
// nothing. Throws kValue for another name.
void limit_instruction_sets();

// The instruction set each part of the CPU kernels has chosen here: {"oneDNN", "avx512_core_vnni"}.
struct InstructionSet {
  std::string part, name;
};
std::vector<InstructionSet> cpu_instruction_sets();

// The processor as it calls itself, with the sizes of its caches, by which kernels cut their work.
std::string processor_name();

// Adds the facts of this machine and this build that decide which kernels there are, and how fast each is.
void add_machine(Key& key);

}  // namespace sluice
