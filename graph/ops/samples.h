#pragma once
// Which samples come next, and the files they lie in: the heads of input pipelines.
#include <span>

#include "graph/op_def.h"

namespace sluice::ops {

std::span<const OpDef* const> samples_ops();

}  // namespace sluice::ops
