#pragma once
// A folder in which a plan's C is built and checked for a microcontroller: the sources, a linker's script with exactly
// the machine's memories, a Makefile, and a program that runs steps and compares every bit of their results.
#include <cstdint>
#include <map>
#include <string>

#include "kernels/c/plan_source.h"

namespace sluice::c {

struct Machine {
  uint64_t flash = uint64_t{1} << 20, ram = uint64_t{256} << 10, stack = 4096;  // bytes
};

// Steps whose results are known: for each port its values of all steps, one after the other.
struct Vectors {
  int64_t steps = 0;
  std::map<std::string, std::string> inputs, outputs;  // bytes by the port's name
};

// Throws kMemory, with the bytes that are too many and the largest tensors, where the weights and the memory of a step
// do not fit before there is any code.
void check_fits(const PlanSource& made, const Machine& machine);

// The contents of files by name. Throws kValue where vectors do not fit the ports.
std::map<std::string, std::string> project_files(const PlanSource& made, const Machine& machine,
                                                 const Vectors& vectors);

}  // namespace sluice::c
