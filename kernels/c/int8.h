#pragma once
// Sums of products of 8-bit integers, and what becomes of them (int8_conv, int8_linear).
#include <string>

#include "kernels/c/printer.h"

namespace sluice::c {

// A declaration of `zero`, the integer that stands for 0 in x; and x at a place as a factor, with that taken off.
void add_int8_zero(Lines& lines, const plan::KernelQuery& query);
std::string int8_factor(const plan::KernelQuery& query, const std::string& place);
// Scales the sum `a` of output channel `channel` as the op says, and writes it to y0[place]. A residual is at
// `residual`.
void finish_int8(Lines& lines, const plan::KernelQuery& query, Shared& shared, const std::string& channel,
                 const std::string& residual, const std::string& place);

}  // namespace sluice::c
