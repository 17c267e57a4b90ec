#pragma once
// Devices of kind "c": the small machine inside of the engine, so that a plan for it can be run, watched and compared.
// Their kernels are those that are printed, made by the machine's compiler when they are prepared
// (kernels/cpu/generated/host_compiler.h), so that their results are those of the plan as C, bit by bit.
#include "streams/backend.h"

namespace sluice::c {

const Backend& backend();

}  // namespace sluice::c
