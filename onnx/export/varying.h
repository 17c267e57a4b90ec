#pragma once
// Constants that a program makes of sizes.
#include <string>
#include <vector>

#include "onnx/export/emission.h"

namespace sluice::onnx::exporting {

// A constant that is another one in each trace, written as what it is of the sizes: equal numbers, steps, a triangle.
// Gives the name of its result; "" for one that is the same in all. Throws kUnsupported for others.
std::string varying_constant(Exporter& to, const std::vector<const graph::Graph*>& graphs,
                             const std::vector<const CapturedGraph*>& traces, const graph::Variable& variable);

}  // namespace sluice::onnx::exporting
