#pragma once
// Nested graphs, as attributes hold them (AttrGraph): what they give, and calling them.
#include <span>
#include <vector>

#include "base/attr.h"
#include "base/cost.h"
#include "graph/op_def.h"

namespace sluice {

// Types of all values, inputs first. Throws the error of the first call that cannot be, and kValue where a call says
// other types of its results than it gives. REQUIRES: check_attr_graph().
std::vector<TensorType> infer_nested(const AttrGraph& graph, Types inputs);
// The outputs' types among those of all values.
std::vector<TensorType> output_types(const AttrGraph& graph, Types values);
// Calls the ops, one after another. REQUIRES: as many inputs as it has, and no windows.
std::vector<Value> call_nested(const AttrGraph& graph, std::span<const Value> inputs);
// The work of all calls. `values`: types of all values.
Cost cost_of_nested(const AttrGraph& graph, Types values);

// A kernel's attributes, without those that are none of its op's (workspace_limit, precision), in the op's order.
Attrs attrs_of_kernel(const OpDef& op, NamedAttrs attrs);

}  // namespace sluice
