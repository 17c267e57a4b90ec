#pragma once
// A model as a captured graph: what the compiler takes.
#include <cstdint>
#include <map>
#include <string>

#include "onnx/model.h"
#include "tensor/trace.h"

namespace sluice {
class EagerExecutor;
}

namespace sluice::onnx {

// Traces the model for inputs of these sizes, by the names that the file has for dims ("batch"), or "input.axis" of one
// without a name. Throws kValue for a size that is not known, and kUnsupported for inputs that are no tensors.
CapturedGraph capture(EagerExecutor& eager, const Model& model, const std::map<std::string, int64_t>& sizes,
                      const std::string& name);

}  // namespace sluice::onnx
