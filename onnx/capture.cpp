#include "onnx/capture.h"

#include "base/error.h"
#include "graph/tape.h"
#include "tensor/eager.h"
#include "tensor/random.h"

namespace sluice::onnx {
namespace {

TensorType type_of(const Port& port, const std::map<std::string, int64_t>& sizes) {
  SLUICE_CHECK_KIND(
      kUnsupported, port.kind == "tensor" && port.dtype && port.dims,
      "onnx: input '{}' is a {} of which the file says no type; a graph takes tensors of known dtype and rank",
      port.name, port.kind);
  Shape shape;
  for (size_t axis = 0; axis < port.dims->size(); ++axis) {
    const std::string& dim = (*port.dims)[axis];
    if (!dim.empty() && dim.find_first_not_of("0123456789") == std::string::npos) {
      shape.push_back(std::stoll(dim));
      continue;
    }
    const std::string name = dim.empty() ? port.name + "." + std::to_string(axis) : dim;
    const auto size = sizes.find(name);
    SLUICE_CHECK(size != sizes.end(), "onnx: input '{}': the size of dim '{}' is not known; say which it is to have",
                 port.name, name);
    shape.push_back(size->second);
  }
  return {*port.dtype, shape};
}

}  // namespace

CapturedGraph capture(EagerExecutor& eager, const Model& model, const std::map<std::string, int64_t>& sizes,
                      const std::string& name) {
  const GradMode no_grad(false);
  TraceScope scope(eager, name);
  std::vector<Value> parameters;
  for (const auto& [parameter, tensor] : model.parameters()) {
    scope.register_variable(parameter, tensor);
    parameters.push_back(tensor);
  }
  std::vector<Item> inputs;
  for (const Port& port : model.inputs()) inputs.emplace_back(scope.add_input(port.name, type_of(port, sizes)));
  Generator generator;
  const std::vector<Item> made = model.run(inputs, parameters, generator);
  std::vector<std::pair<std::string, Value>> outputs;
  for (size_t i = 0; i < made.size(); ++i) {
    SLUICE_CHECK_KIND(kUnsupported, made[i].tensor.defined(), "onnx: output '{}' is no tensor; a graph gives tensors",
                      model.outputs()[i].name);
    outputs.emplace_back(model.outputs()[i].name, made[i].tensor);
  }
  return scope.finish(outputs);
}

}  // namespace sluice::onnx
