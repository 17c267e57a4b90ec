#pragma once
// Attributes of ops from Python's objects.
#include <string>

#include "bindings.h"
#include "graph/op_def.h"

namespace sluice::python {

std::string attr_type(const Param& param);  // "int", "Sequence[str] | None"

// The object as the kind that the param's default has. A type is (dtype, shape); a graph is {"inputs": 2, "calls":
// [("mul", {}, [0, 1])], "outputs": [2]}, whose values are numbered, inputs first. An argument of another kind that an
// op takes all the same (an int for a float) is left to validate_attrs(). `depth`: graphs around it. Throws kType.
Attr attr_from(nb::handle object, const Param& param, const OpDef& op, int depth = 0);

}  // namespace sluice::python
