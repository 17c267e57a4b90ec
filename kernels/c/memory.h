#pragma once
// Where values of a step and variables lie in a plan's C: one block of memory, and an array for each variable.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/c/plan_source.h"
#include "plan/plan.h"

namespace sluice::c {

// Buffers by lifetime along the one order in which a step runs, without room for vectors between them. Inputs keep
// their bytes for the whole step, outputs to its end.
struct Block {
  std::vector<uint64_t> offsets;  // by the plan's buffers; multiples of kAlignment
  uint64_t bytes = 0;             // a multiple of kAlignment
};
// REQUIRES: every actor fires once a step, in the order of the certificate.
Block lay_out(const plan::Plan& plan);

// What the arrays of `plan` take, by tensor: the step's, largest first, then the variables.
// Throws kValue where a pattern of a section matches no variable.
std::vector<Tensor> tensors_of(const plan::Plan& plan, const Block& block, const Sections& sections);

// "v3_conv1_weight".
std::string variable_name(const plan::Plan& plan, size_t index);
// The array of a variable with its contents. Throws kValue where it has none.
// Its attributes are a macro of its own, NAME_v3_conv1_weight.
std::string variable_text(const plan::Plan& plan, size_t index, bool changes, const Contents& contents,
                          const std::string& name, const Sections& sections);

// Text between "/*" and "*/".
std::string comment(std::string text);

}  // namespace sluice::c
