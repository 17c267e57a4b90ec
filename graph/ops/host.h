#pragma once
// User functions as ops.
#include <span>
#include <string>
#include <vector>

#include "base/host_dims.h"
#include "graph/op_def.h"

namespace sluice::ops {

// Calls the host function registered under `name` with the engine; it writes outputs of these types. With dims, behind
// its tensors come the extents of those taken, and behind its outputs those of the others.
std::vector<Value> host_function(std::span<const Value> inputs, const std::string& name,
                                 std::span<const TensorType> outputs, const HostDims& dims = {});

bool is_host_function(const OpDef& op);
const std::string& host_function_name(const Attrs& attrs);
HostDims host_dims_of(const Attrs& attrs);  // of a call of it

std::span<const OpDef* const> host_ops();

}  // namespace sluice::ops
