#pragma once
// User functions as ops.
#include <span>
#include <string>
#include <vector>

#include "graph/op_def.h"

namespace sluice::ops {

// Calls the host function registered under `name` with the engine; it writes outputs of these types.
std::vector<Value> host_function(std::span<const Value> inputs, const std::string& name,
                                 std::span<const TensorType> outputs);

std::span<const OpDef* const> host_ops();

}  // namespace sluice::ops
