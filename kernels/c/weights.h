#pragma once
// Weights in less memory than the engine gives them, which a machine of a few hundred KB needs.
#include <map>
#include <string>

#include "kernels/c/casts.h"
#include "kernels/c/plan_source.h"

namespace sluice::c {

// Lets constants whose floats are all integers from -127 to 127 lie as int8: C converts an element where it is read.
// One that has the elements of another constant of int8 is that one from now on. Returns the bytes of the others, by
// name.
std::map<std::string, std::string> narrow_constants(CastsRead& read, const Contents& contents);

// Joins variables anew for each kernel that reads them joined, where the engine keeps them from the first to the last.
// REQUIRES: every actor fires once a step, in the order of the certificate.
void join_again(CastsRead& read);

}  // namespace sluice::c
