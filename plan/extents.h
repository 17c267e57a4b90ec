#pragma once
// Results that may be shorter than the plan has room for: how long they are is told by further outputs of the plan
// (Output::extent_of). Callers see results as long as they are, and none of these.
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace sluice::plan {

struct NamedType {
  std::string name;
  TensorType type;
  std::optional<ExtentOf> extent_of = {};  // of outputs
};

struct ResultExtent {
  int output = 0;  // the result
  int axis = 0;
  std::string dim;
  int extent = 0;  // the output that tells how long it is
};

std::vector<NamedType> named_outputs(const Plan& plan);
// All there are among these outputs. A rank may have the extent of a result that it does not have.
// Throws kValue for an axis that the result does not have.
std::vector<ResultExtent> result_extents(std::span<const NamedType> outputs);
// The outputs that callers see: `outputs` without those that tell how long others are.
std::vector<NamedType> visible(std::span<const NamedType> outputs);
// The same as result_extents(), with results by their number among the visible.
std::vector<ResultExtent> visible_extents(std::span<const NamedType> outputs);

}  // namespace sluice::plan
