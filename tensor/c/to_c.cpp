#include "tensor/c/to_c.h"

#include <filesystem>
#include <memory>
#include <utility>

#include "base/files/file.h"
#include "kernels/c/engine_device.h"
#include "kernels/c/target.h"
#include "runtime/bundle/bundle.h"
#include "streams/linked_backend.h"
#include "tensor/session/graph_session.h"

namespace sluice {

CapturedGraph saved_graph(const std::string& path, const OpRegistry& ops) {
  namespace fs = std::filesystem;
  const fs::path model = path, file = fs::is_directory(model) ? model / kGraphFile : model;
  CapturedGraph captured{graph::parse(read_file(file.string()), file.string(), ops), {}};
  if (!fs::is_directory(model)) return captured;
  for (auto& [name, weight] : load_bundle(path).weights)
    captured.variables[name] = Value(std::make_shared<EagerImpl>(weight.storage, weight.spec, DeviceId{}));
  return captured;
}

namespace {

// One step at a time, on one core, in as little memory as is found.
GraphSessionOptions options_for(const CapturedGraph& captured, const ToCOptions& wanted) {
  GraphSessionOptions options;
  options.compile.name = captured.graph.name;
  options.compile.device = c::device();
  options.compile.cores = 1;
  options.compile.outputs_buffer_size = 1;
  options.compile.fast_quotas = false;
  options.compile.pack_weights = false;
  options.compile.packing = "every";
  options.compile.memory_budget = wanted.memory_budget;
  options.compile.disabled_passes = wanted.disabled_passes;
  options.compile.order = wanted.order;
  return options;
}

std::string bytes_of(const Tensor& tensor) {
  std::string bytes(static_cast<size_t>(numel(tensor.shape())) * dtype_size(tensor.type().dtype), '\0');
  tensor.copy_to_host(bytes.data());
  return bytes;
}

}  // namespace

c::PlanSource to_c(EagerExecutor& eager, CapturedGraph captured, const ToCOptions& wanted) {
  const std::string name = wanted.name.empty() ? c::c_name(captured.graph.name) : wanted.name;
  captured.graph.freeze_variables();
  const c::Target target;
  GraphSessionOptions options = options_for(captured, wanted);
  options.dry_run = true;
  options.target = &target;
  const GraphSession session(eager, std::move(captured), std::move(options));
  const CompileResult& result = session.compiled();
  const auto contents = [&](const std::string& variable) -> const void* {
    const auto made = result.constants.find(variable);
    if (made != result.constants.end()) return made->second.data();
    const auto found = session.captured().variables.find(variable);
    return found == session.captured().variables.end() ? nullptr : found->second.read();
  };
  return c::plan_source(result.plan, name, contents, wanted.sections);
}

c::Vectors known_steps(EagerExecutor& eager, CapturedGraph captured, const std::vector<std::vector<Tensor>>& steps,
                       const ToCOptions& wanted) {
  add_backend(c::backend());
  captured.graph.freeze_variables();
  GraphSessionOptions options = options_for(captured, wanted);
  GraphSession session(eager, std::move(captured), std::move(options));
  const plan::Plan& plan = session.compiled().plan;
  c::Vectors known;
  known.steps = static_cast<int64_t>(steps.size());
  for (const std::vector<Tensor>& inputs : steps) {
    SLUICE_CHECK(inputs.size() == plan.inputs.size(), "steps of '{}': one has {} inputs; the graph has {}", plan.name,
                 inputs.size(), plan.inputs.size());
    const std::vector<Tensor> outputs = session.call(inputs);
    for (size_t i = 0; i < inputs.size(); ++i) known.inputs[plan.inputs[i].name] += bytes_of(inputs[i]);
    for (size_t o = 0; o < outputs.size(); ++o) known.outputs[plan.outputs[o].name] += bytes_of(outputs[o]);
  }
  return known;
}

std::vector<Tensor> zero_inputs(const CapturedGraph& captured) {
  std::vector<Tensor> inputs;
  for (const graph::Input& input : captured.graph.inputs()) {
    const TensorType& type = captured.graph.type(input.value);
    const std::vector<char> zeros(std::max<size_t>(1, static_cast<size_t>(numel(type.shape)) * dtype_size(type.dtype)));
    inputs.push_back(Tensor::from_host(type, zeros.data()));
  }
  return inputs;
}

}  // namespace sluice
