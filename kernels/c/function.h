#pragma once
// A kernel as a function of C, in a file that begins with the prelude.
#include <map>
#include <string>

#include "kernels/c/printer.h"

namespace sluice::c {

// Headers, types, and what holds compilers to the same bits.
extern const char* const kPrelude;

// "(const f32* x0, f32* y0) { ... }": returns an error's number, or 0. Absent inputs are null. `lie`: the dtypes in
// which inputs lie, where these are not those in which they are computed. Throws kUnsupported.
std::string function_text(const plan::KernelQuery& query, Shared& shared, const std::map<size_t, DType>& lie = {});

}  // namespace sluice::c
