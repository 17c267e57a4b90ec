#pragma once
// Steps of bodies, as CUDA C++.
#include <string>
#include <vector>

#include "base/attr.h"

namespace sluice::cuda {

// A step on values v0, v1, ...: its function, where it needs one, its call, and the dtype of what it gives.
struct StepText {
  std::string function, call;
  DType dtype;
};
// `number`: of its result; `dtypes`: of all values before. Throws kUnsupported where it has no form.
StepText text_of(const AttrCall& step, size_t number, const std::vector<DType>& dtypes);
// "const float v4 = rounded<float>(...);": as if it were stored.
std::string definition(const StepText& step, size_t number);

extern const char* const kRounding;  // rounded(), in front of them

}  // namespace sluice::cuda
