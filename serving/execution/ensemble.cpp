#include "serving/execution/ensemble.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "serving/execution/merge.h"
#include "serving/execution/ports.h"
#include "serving/execution/scratch.h"
#include "sluice/compile.h"

namespace sluice::serving {

namespace {

namespace fs = std::filesystem;
namespace js = boost::json;

std::string read_text(const fs::path& path, const std::string& where) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(Code::kInvalidArgument, where + ": its bundle has no " + path.filename().string());
  return {std::istreambuf_iterator<char>(in), {}};
}

bool is_family(const fs::path& bundle) { return fs::exists(bundle / "family.json"); }

// One step, and how its names are the ensemble's.
struct Step {
  std::string name, bundle;
  std::map<std::string, std::string> inputs, outputs;  // the bundle's port: the ensemble's tensor
  js::object family;                                   // of a family
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
  Step step{config.model_name(), found.bundle, {}, {}, {}};
  for (const auto& [name, tensor] : config.input_map())
    step.inputs[port_of(ports.inputs(), name, fmt::format("{}: input '{}'", where, name))] = tensor;
  for (const auto& [name, tensor] : config.output_map())
    step.outputs[port_of(ports.outputs(), name, fmt::format("{}: output '{}'", where, name))] = tensor;
  if (is_family(found.bundle))
    step.family = js::parse(read_text(fs::path(found.bundle) / "family.json", where)).as_object();
  return step;
}

std::vector<Step> steps_of(const ExecutorSpec& spec) {
  std::vector<Step> steps;
  for (const auto& config : spec.config.ensemble_scheduling().step()) steps.push_back(step_of(spec, config));
  const std::string where = "ensemble '" + spec.config.name() + "'";
  if (steps.empty()) throw Error(Code::kInvalidArgument, where + ": it has no step");
  for (const Step& step : steps) {
    if (step.family.empty() != steps.front().family.empty() ||
        (!step.family.empty() &&
         (step.family.at("members") != steps.front().family.at("members") ||
          step.family.at("dims").as_array().size() != steps.front().family.at("dims").as_array().size())))
      throw Error(Code::kUnsupported,
                  fmt::format("{}: steps '{}' and '{}' have plans for other sizes; save them with the same", where,
                              steps.front().name, step.name));
  }
  return steps;
}

// Of member `m` of all steps, or of all plans.
std::string compile_member(api::Engine& engine, const ExecutorSpec& spec, const std::vector<Step>& steps, int m,
                           const std::string& to) {
  std::vector<GraphPart> parts;
  for (const Step& step : steps) {
    const fs::path folder =
        step.family.empty() ? fs::path(step.bundle) : fs::path(step.bundle) / "members" / std::to_string(m);
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

bool equal(const api::Tensor& a, const api::Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0);
}

// The ports of the ensemble as a family's file has them: each is one of a step's.
js::array family_ports(const std::vector<Step>& steps, const std::vector<std::string>& names, bool inputs) {
  js::array ports;
  const js::array& dims = steps.front().family.at("dims").as_array();
  for (const std::string& name : names) {
    for (const Step& step : steps) {
      bool found = false;
      for (const auto& [port, tensor] : inputs ? step.inputs : step.outputs) {
        if (tensor != name) continue;
        for (const js::value& of_step : step.family.at(inputs ? "inputs" : "outputs").as_array()) {
          if (of_step.at("name").as_string() != port) continue;
          js::object copy = of_step.as_object();
          copy["name"] = name;
          for (js::value& axis : copy["shape"].as_array()) {
            const js::array& of_dims = step.family.at("dims").as_array();
            for (size_t d = 0; d < of_dims.size() && axis.is_string(); ++d)
              if (axis == of_dims[d].at("name")) {
                axis = dims[d].at("name");
                break;
              }
          }
          ports.push_back(std::move(copy));
          found = true;
        }
      }
      if (found) break;
    }
  }
  return ports;
}

// One bundle of the members', whose weights it has once where they are equal.
void join_members(const ExecutorSpec& spec, const std::vector<Step>& steps, const std::vector<std::string>& members,
                  const std::string& to) {
  std::map<std::string, api::Tensor> weights;
  for (size_t m = 0; m < members.size(); ++m) {
    const fs::path from = members[m], folder = fs::path(to) / "members" / std::to_string(m);
    fs::create_directories(folder);
    for (const char* file : {"plan.json", "graph.txt"}) fs::copy_file(from / file, folder / file);
    if (m == 0) fs::copy_file(from / "meta.json", fs::path(to) / "meta.json");
    for (api::NamedTensor& tensor : api::load_tensors(from / "weights.safetensors")) {
      const auto [known, fresh] = weights.try_emplace(tensor.name, tensor.tensor);
      if (!fresh && !equal(known->second, tensor.tensor))
        weights[fmt::format("members/{}/{}", m, tensor.name)] = tensor.tensor;
    }
  }
  std::vector<api::NamedTensor> all;
  for (auto& [name, tensor] : weights) all.push_back({name, std::move(tensor)});
  api::save_tensors(to + "/weights.safetensors", all);
  std::vector<std::string> inputs, outputs;  // in the order in which the plans have them
  const api::Plan plan = api::Plan::load(members.front());
  for (const api::Port& port : plan.inputs()) inputs.push_back(port.name);
  for (const api::Port& port : plan.outputs()) outputs.push_back(port.name);
  js::object family{{"schema_version", 1},
                    {"name", spec.config.name()},
                    {"dims", steps.front().family.at("dims")},
                    {"inputs", family_ports(steps, inputs, true)},
                    {"outputs", family_ports(steps, outputs, false)},
                    {"members", steps.front().family.at("members")}};
  std::ofstream(fs::path(to) / "family.json") << js::serialize(family);
}

}  // namespace

void compile_ensemble(api::Engine& engine, const ExecutorSpec& spec, const std::string& to) {
  const std::vector<Step> steps = steps_of(spec);
  if (steps.front().family.empty()) {
    compile_member(engine, spec, steps, 0, to);
    return;
  }
  const ScratchFolder scratch;
  std::vector<std::string> members;
  const size_t count = steps.front().family.at("members").as_array().size();
  for (size_t m = 0; m < count; ++m)
    members.push_back(
        compile_member(engine, spec, steps, static_cast<int>(m), fmt::format("{}/{}", scratch.path(), m)));
  join_members(spec, steps, members, to);
}

uint64_t ledger_of_ensemble(const ExecutorSpec& spec) {
  uint64_t bytes = 0;
  for (const Step& step : steps_of(spec)) bytes += api::Plan::load(step.bundle).memory_bytes();
  return bytes;
}

}  // namespace sluice::serving
