// Completes from the bundle what a config leaves open.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "serving/core/datatype.h"
#include "serving/core/error.h"
#include "serving/execution/parameters.h"
#include "serving/repository/config.h"
#include "serving/repository/names.h"

namespace sluice::serving {

namespace {

using api::Port;
using inference::ModelConfig;

bool varies(const Port& port, size_t axis) { return axis < port.dims.size() && !port.dims[axis].empty(); }

// The most rows of the family whose first axis, of all tensors, is one dim; 0 of all other bundles.
int64_t rows_of(const std::vector<Port>& inputs, const std::vector<Port>& outputs) {
  if (inputs.empty() || !varies(inputs[0], 0)) return 0;
  const auto is_batch = [&](const Port& port) { return varies(port, 0) && port.dims[0] == inputs[0].dims[0]; };
  const bool all =
      std::all_of(inputs.begin(), inputs.end(), is_batch) && std::all_of(outputs.begin(), outputs.end(), is_batch);
  return all ? inputs[0].shape[0] : 0;
}

std::string names_of(const std::vector<Port>& ports, const std::string& prefix) {
  std::string own, alias;
  for (size_t i = 0; i < ports.size(); ++i) {
    own += fmt::format("{}'{}'", i > 0 ? ", " : "", ports[i].name);
    alias += fmt::format("{}'{}{}'", i > 0 ? ", " : "", prefix, i);
  }
  return ports.empty() ? "none" : own + ", or " + alias;
}

int find_port(const std::vector<Port>& ports, const std::string& name, const std::string& prefix) {
  for (size_t i = 0; i < ports.size(); ++i)
    if (ports[i].name == name) return static_cast<int>(i);
  for (size_t i = 0; i < ports.size(); ++i)
    if (name == prefix + std::to_string(i)) return static_cast<int>(i);
  return -1;
}

struct Side {
  const char* what;
  std::string prefix;
  const std::vector<Port>& ports;
};

// Inputs and outputs that are batched without padding, and the dims of the bundle's that say how long they are
// together.
struct Ragged {
  std::set<std::string> names, dims;
};

// Type and dims of the tensor, where they are not given. Returns its port.
template <class Given>
int fill(const ModelConfig& config, const Side& side, Given& given, bool auto_config, const Ragged& ragged = {}) {
  const std::string here = fmt::format("model '{}': {} '{}'", config.name(), side.what, shown(given.name()));
  const int index = find_port(side.ports, given.name(), side.prefix);
  if (index < 0)
    throw Error(Code::kInvalidArgument, fmt::format("{}: the bundle has none of this name; it has {}", here,
                                                    names_of(side.ports, side.prefix)));
  const Port& port = side.ports[static_cast<size_t>(index)];
  const bool text = given.data_type() == inference::TYPE_STRING;
  if (given.data_type() == inference::TYPE_INVALID) {
    if (!auto_config) throw Error(Code::kInvalidArgument, here + ": data_type: none; configs must be complete here");
    given.set_data_type(datatype_of(port.dtype));
  }
  // The rows of a ragged input, and of what has as many, are one axis of the bundle's, without a batch.
  const bool rows = ragged.names.contains(given.name()) || (varies(port, 0) && ragged.dims.contains(port.dims[0]));
  const size_t first = config.max_batch_size() > 0 && !rows ? 1 : 0;
  if (!given.dims().empty() || given.has_reshape() || port.shape.size() <= first) return index;
  if (!auto_config) throw Error(Code::kInvalidArgument, here + ": dims: none; configs must be complete here");
  if (text) {
    given.add_dims(1);
    return index;
  }
  for (size_t axis = first; axis < port.shape.size(); ++axis)
    given.add_dims(varies(port, axis) || (rows && axis == 0) ? -1 : port.shape[axis]);
  return index;
}

Ragged ragged_of(const ModelConfig& config, const std::vector<Port>& inputs) {
  Ragged ragged;
  for (const auto& input : config.input()) {
    if (!input.allow_ragged_batch()) continue;
    ragged.names.insert(input.name());
    const int port = find_port(inputs, input.name(), "INPUT_");
    if (port >= 0 && varies(inputs[static_cast<size_t>(port)], 0))
      ragged.dims.insert(inputs[static_cast<size_t>(port)].dims[0]);
  }
  for (const auto& output : config.batch_output())
    ragged.names.insert(output.target_name().begin(), output.target_name().end());
  return ragged;
}

// Inputs that the server makes itself.
std::set<std::string> made_inputs(const ModelConfig& config) {
  std::set<std::string> made;
  for (const auto& control : config.sequence_batching().control_input()) made.insert(control.name());
  for (const auto& state : config.sequence_batching().state()) made.insert(state.input_name());
  for (const auto& input : config.batch_input())
    for (const std::string& target : input.target_name()) made.insert(target);
  for (const auto& [name, lengths] : string_lengths_of(config)) made.insert(lengths);
  return made;
}
std::set<std::string> made_outputs(const ModelConfig& config) {
  std::set<std::string> made;
  for (const auto& state : config.sequence_batching().state()) made.insert(state.output_name());
  return made;
}

}  // namespace

void complete_config(ModelConfig& config, const std::vector<Port>& inputs, const std::vector<Port>& outputs,
                     bool auto_config) {
  if (config.has_ensemble_scheduling()) return;
  const Side in{"input", "INPUT_", inputs}, out{"output", "OUTPUT_", outputs};
  const bool no_inputs = config.input().empty(), no_outputs = config.output().empty();
  if (!auto_config && (no_inputs || no_outputs))
    throw Error(Code::kInvalidArgument, fmt::format("model '{}': {}: none in its config; configs must be complete here",
                                                    config.name(), no_inputs ? "input" : "output"));
  if (no_inputs && no_outputs && config.max_batch_size() == 0)
    config.set_max_batch_size(static_cast<int32_t>(std::min<int64_t>(rows_of(inputs, outputs), INT32_MAX)));
  const Ragged ragged = ragged_of(config, inputs);
  std::set<int> covered;
  for (auto& input : *config.mutable_input()) covered.insert(fill(config, in, input, auto_config, ragged));
  const auto made = made_inputs(config);
  for (size_t i = 0; auto_config && i < inputs.size(); ++i) {
    const std::string name = in.prefix + std::to_string(i);
    if (covered.count(static_cast<int>(i)) > 0 || made.count(inputs[i].name) > 0 || made.count(name) > 0) continue;
    config.add_input()->set_name(name);
    fill(config, in, *config.mutable_input()->rbegin(), true, ragged);
  }
  for (auto& output : *config.mutable_output()) fill(config, out, output, auto_config, ragged);
  const auto kept = made_outputs(config);
  for (size_t i = 0; no_outputs && i < outputs.size(); ++i) {
    const std::string name = out.prefix + std::to_string(i);
    if (kept.count(outputs[i].name) > 0 || kept.count(name) > 0) continue;
    config.add_output()->set_name(name);
    fill(config, out, *config.mutable_output()->rbegin(), true, ragged);
  }
  if (config.instance_group().empty()) config.add_instance_group();
  int number = 0;
  for (auto& group : *config.mutable_instance_group()) {
    if (group.name().empty()) group.set_name(fmt::format("{}_{}", config.name(), number));
    if (group.count() == 0) group.set_count(1);
    if (group.kind() == inference::ModelInstanceGroup::KIND_AUTO)
      group.set_kind(inference::ModelInstanceGroup::KIND_MODEL);
    ++number;
  }
}

}  // namespace sluice::serving
