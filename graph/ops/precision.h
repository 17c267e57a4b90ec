#pragma once
#include "graph/op_def.h"

namespace sluice::ops {

// Whether the op's kernels of float32 know the attribute "precision". It is none of the op's params: a plan has it
// where the compile option float32_matmul_precision asks for less than the highest.
bool takes_precision(const OpDef& op);

}  // namespace sluice::ops
