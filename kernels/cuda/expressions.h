#pragma once
// The mathematics of elementwise ops (base/scalar) as CUDA C++.
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/scalar_ops.h"

namespace sluice::cuda {

// The text of what an op computes from `a` and `b` of type T, which is compute_type(operands); null: it is not defined
// for them.
const char* expression_text(const ScalarOp& op, DType operands);

// The text in front of expressions: the functions that they call, beside what CUDA has.
std::string functions_for(std::string_view expressions);

}  // namespace sluice::cuda
