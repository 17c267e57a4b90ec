#pragma once
// Devices of kind "meta": tensors that have a type and no contents. Ops say the types of their results and compute
// nothing, so that a model of any size can be built to ask for its names and shapes.
#include "streams/backend.h"

namespace sluice::meta {

const Backend& backend();

}  // namespace sluice::meta
