#include "serving/execution/ensemble.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "serving/execution/merge.h"
#include "serving/execution/parameters.h"
#include "serving/execution/ports.h"
#include "serving/execution/scratch.h"
#include "sluice/compile.h"

namespace sluice::serving {

namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path, const std::string& where) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(Code::kInvalidArgument, where + ": its bundle has no " + path.filename().string());
  return {std::istreambuf_iterator<char>(in), {}};
}

// One step, and how its names are the ensemble's.
struct Step {
  std::string name, bundle;
  api::Plan plan;
  std::map<std::string, std::string> inputs, outputs;  // the bundle's port: the ensemble's tensor

  bool family() const { return !plan.dims().empty(); }
};

// The bundle's name of a port that a map calls by its own or by the config's.
std::string port_of(const std::vector<ShownPort>& ports, const std::string& name, const std::string& where) {
  for (const ShownPort& port : ports) {
    if (port.name != name && port.bundle.name != name) continue;
    if (port.reshaped) throw Error(Code::kUnsupported, where + ": it has a reshape; a step of an ensemble must not");
    return port.bundle.name;
  }
  throw Error(Code::kInvalidArgument, where + ": the model has none of this name");
}

Step step_of(const ExecutorSpec& spec, const inference::ModelEnsembling::Step& config) {
  const std::string where = fmt::format("ensemble '{}': step '{}'", spec.config.name(), config.model_name());
  if (!spec.step) throw Error(Code::kInvalidArgument, where + ": no such model");
  const ExecutorSpec::Step found = spec.step(config.model_name(), config.model_version());
  if (found.bundle.empty())
    throw Error(Code::kUnsupported, where + ": an ensemble itself; steps must be models with bundles");
  if (found.config.has_sequence_batching())
    throw Error(Code::kUnsupported, where + ": sequence_batching; a step of an ensemble keeps no state");
  if (found.config.model_transaction_policy().decoupled())
    throw Error(Code::kUnsupported, where +
                                        ": decoupled; the steps of an ensemble answer once. The ensemble itself may "
                                        "be decoupled, with its feedback from step to step");
  if (!string_lengths_of(found.config).empty())
    throw Error(Code::kUnsupported, where + ": string_lengths; the steps of an ensemble get what its clients send");
  for (const inference::ModelInput& input : found.config.input())
    if (input.allow_ragged_batch())
      throw Error(Code::kUnsupported,
                  fmt::format("{}: input '{}' has allow_ragged_batch; the steps of an ensemble take "
                              "rows of one length",
                              where, input.name()));
  const api::Plan plan = api::Plan::load(found.bundle);
  inference::ModelConfig bare = found.config;
  for (inference::ModelOutput& output : *bare.mutable_output()) output.clear_label_filename();
  const ModelPorts ports(bare, plan.inputs(), plan.outputs(), "", {{}, inputs_of_files(found.bundle)});
  Step step{config.model_name(), found.bundle, plan, {}, {}};
  for (const auto& [name, tensor] : config.input_map())
    step.inputs[port_of(ports.inputs(), name, fmt::format("{}: input '{}'", where, name))] = tensor;
  for (const auto& [name, tensor] : config.output_map())
    step.outputs[port_of(ports.outputs(), name, fmt::format("{}: output '{}'", where, name))] = tensor;
  return step;
}

std::vector<Step> steps_of(const ExecutorSpec& spec) {
  std::vector<Step> steps;
  for (const auto& config : spec.config.ensemble_scheduling().step()) steps.push_back(step_of(spec, config));
  const std::string where = "ensemble '" + spec.config.name() + "'";
  if (steps.empty()) throw Error(Code::kInvalidArgument, where + ": it has no step");
  for (const Step& step : steps) {
    if (step.plan.members() != steps.front().plan.members())
      throw Error(Code::kUnsupported,
                  fmt::format("{}: steps '{}' and '{}' have plans for other sizes; save them with the same", where,
                              steps.front().name, step.name));
  }
  return steps;
}

// Compiles member `m` of all steps, or of all plans.
std::string compile_member(api::Engine& engine, const ExecutorSpec& spec, const std::vector<Step>& steps, int m,
                           const std::string& to) {
  std::vector<GraphPart> parts;
  for (const Step& step : steps) {
    const fs::path folder =
        step.family() ? fs::path(step.bundle) / "members" / std::to_string(m) : fs::path(step.bundle);
    parts.push_back({step.name, read_text(folder / "graph.txt", step.name), step.inputs, step.outputs});
  }
  std::set<std::string> inputs;
  std::vector<std::string> outputs;
  for (const auto& input : spec.config.input()) inputs.insert(input.name());
  for (const auto& output : spec.config.output()) outputs.push_back(output.name());
  const MergedGraph merged = merge_graphs(spec.config.name(), parts, inputs, outputs);
  std::vector<api::NamedTensor> weights;
  for (size_t s = 0; s < steps.size(); ++s) {
    std::map<std::string, api::Tensor> of_step;
    const std::string own = fmt::format("members/{}/", m);
    for (api::NamedTensor& tensor : api::load_tensors(steps[s].bundle + "/weights.safetensors")) {
      if (tensor.name.starts_with(own))
        of_step[tensor.name.substr(own.size())] = std::move(tensor.tensor);
      else
        of_step.emplace(std::move(tensor.name), std::move(tensor.tensor));
    }
    for (auto& [name, tensor] : of_step)
      if (std::string whole = fmt::format("{}/{}", s, name); merged.variables.contains(whole))
        weights.push_back({std::move(whole), std::move(tensor)});
  }
  api::compile(engine, merged.text, weights, to);
  return to;
}

// The ports of the ensemble, each of which is one of a step's, with the first step's names of dims.
std::vector<api::Port> ports_of(const std::vector<Step>& steps, const std::vector<api::Port>& merged, bool inputs) {
  const std::vector<std::string> dims = steps.front().plan.dims();
  const auto of_step = [&](const std::string& name) -> api::Port {
    for (const Step& step : steps) {
      const std::vector<std::string> own = step.plan.dims();
      for (api::Port& port : inputs ? step.plan.inputs() : step.plan.outputs()) {
        const auto& tensors = inputs ? step.inputs : step.outputs;
        const auto tensor = tensors.find(port.name);
        if (tensor == tensors.end() || tensor->second != name) continue;
        port.name = name;
        for (std::string& dim : port.dims)
          if (const auto at = std::find(own.begin(), own.end(), dim); at != own.end())
            dim = dims[static_cast<size_t>(at - own.begin())];
        return port;
      }
    }
    throw Error(Code::kInternal, "ensemble: '" + name + "' is of no step");
  };
  std::vector<api::Port> ports;
  for (const api::Port& port : merged) ports.push_back(of_step(port.name));
  return ports;
}

}  // namespace

void compile_ensemble(api::Engine& engine, const ExecutorSpec& spec, const std::string& to) {
  const std::vector<Step> steps = steps_of(spec);
  if (!steps.front().family()) {
    compile_member(engine, spec, steps, 0, to);
    return;
  }
  const ScratchFolder scratch;
  std::vector<std::string> members;
  for (size_t m = 0; m < steps.front().plan.members().size(); ++m)
    members.push_back(
        compile_member(engine, spec, steps, static_cast<int>(m), fmt::format("{}/{}", scratch.path(), m)));
  const api::Plan merged = api::Plan::load(members.front());
  api::join(members, steps.front().bundle, ports_of(steps, merged.inputs(), true),
            ports_of(steps, merged.outputs(), false), to);
}

uint64_t ledger_of_ensemble(const ExecutorSpec& spec, int instances) {
  uint64_t bytes = 0;
  for (const Step& step : steps_of(spec)) bytes += step.plan.memory_bytes(instances);
  return bytes;
}

}  // namespace sluice::serving
