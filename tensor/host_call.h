#pragma once
// Calls of host functions whose results may be shorter than what there is room for, and how long they are.
#include <span>
#include <string>
#include <vector>

#include "graph/value.h"

namespace sluice {

// A result that a host function writes. Axes with the name of a dim ("" of others) may be shorter than in `type`.
struct HostOutput {
  TensorType type;
  std::vector<std::string> dims;  // per axis
};

// Calls the function registered under `name`. In a graph, it gets inputs that vary in length as long as they are in the
// step, and a dim that inputs have as well is as long as there. Otherwise results are as long as the function made
// them. Throws kValue where two inputs have dims of one name that vary by themselves, or there is not room alike.
std::vector<Value> call_host_function(std::span<const Value> inputs, const std::string& name,
                                      std::span<const HostOutput> outputs);

// How long an axis of `x` is: int64(), in a graph that of the step.
Value extent_of(const Value& x, int64_t axis);

}  // namespace sluice
