// Holds a config's words about sequences against the bundle.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "serving/execution/sequences.h"

namespace sluice::serving {

namespace {

using Control = inference::ModelSequenceBatching::Control;

int find(const std::vector<api::Port>& ports, const std::string& name, const std::string& where, const char* what) {
  for (size_t i = 0; i < ports.size(); ++i)
    if (ports[i].name == name) return static_cast<int>(i);
  const std::string prefix = what[0] == 'i' ? "INPUT_" : "OUTPUT_";
  for (size_t i = 0; i < ports.size(); ++i)
    if (name == prefix + std::to_string(i)) return static_cast<int>(i);
  throw Error(Code::kInvalidArgument, fmt::format("{}: the bundle has no {} '{}'", where, what, name));
}

template <class T>
std::string bytes_of(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// Elements of a row. Throws where its size may differ from call to call.
uint64_t row_elements(const api::Port& port, bool batched, const std::string& where) {
  uint64_t n = 1;
  for (size_t a = batched ? 1 : 0; a < port.shape.size(); ++a) {
    if (a < port.dims.size() && !port.dims[a].empty())
      throw Error(Code::kUnsupported, fmt::format("{}: the bundle has {}; it must be of one size", where, port.str()));
    n *= static_cast<uint64_t>(port.shape[a]);
  }
  return n;
}

template <class Values>
void check_two(const Values& values, const std::string& where) {
  if (values.size() != 2)
    throw Error(Code::kInvalidArgument,
                fmt::format("{}: {} values; give what false and what true is", where, values.size()));
}

}  // namespace

std::vector<std::string> SequencePorts::made(const inference::ModelConfig& config,
                                             const std::vector<api::Port>& inputs) {
  const std::string where = "model '" + config.name() + "': sequence_batching";
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    names.push_back(inputs[static_cast<size_t>(find(inputs, name, where, "input"))].name);
  };
  for (const auto& input : config.sequence_batching().control_input()) add(input.name());
  for (const auto& state : config.sequence_batching().state()) add(state.input_name());
  return names;
}

SequencePorts::SequencePorts(const inference::ModelConfig& config, const std::vector<api::Port>& inputs,
                             const std::vector<api::Port>& outputs, const std::string& folder)
    : where_("model '" + config.name() + "': sequence_batching"),
      batched_(config.max_batch_size() > 0),
      inputs_(inputs) {
  for (const auto& input : config.sequence_batching().control_input()) add_control(input, inputs);
  for (const auto& state : config.sequence_batching().state()) add_state(state, inputs, outputs, folder);
}

void SequencePorts::add_control(const inference::ModelSequenceBatching::ControlInput& input,
                                const std::vector<api::Port>& ports) {
  const std::string where = fmt::format("{}: control_input '{}'", where_, input.name());
  if (input.control_size() != 1)
    throw Error(Code::kInvalidArgument, fmt::format("{}: {} controls; an input has one", where, input.control_size()));
  const Control& control = input.control(0);
  ControlPort port;
  port.port = find(ports, input.name(), where, "input");
  port.kind = control.kind();
  if (port.kind == Control::CONTROL_SEQUENCE_CORRID) {
    port.datatype = control.data_type();
    const size_t size = port.datatype == DataType::TYPE_STRING || port.datatype == DataType::TYPE_INVALID
                            ? 0
                            : datatype_size(port.datatype);
    if ((size != 4 && size != 8) || port.datatype == DataType::TYPE_FP32 || port.datatype == DataType::TYPE_FP64)
      throw Error(Code::kUnsupported, where + ": data_type: a sequence's id is given as an integer of 32 or 64 bits");
    port.no = std::string(size, '\0');
  } else if (control.int32_false_true_size() > 0) {
    check_two(control.int32_false_true(), where + ": int32_false_true");
    port.datatype = DataType::TYPE_INT32;
    port.no = bytes_of(control.int32_false_true(0));
    port.yes = bytes_of(control.int32_false_true(1));
  } else if (control.fp32_false_true_size() > 0) {
    check_two(control.fp32_false_true(), where + ": fp32_false_true");
    port.datatype = DataType::TYPE_FP32;
    port.no = bytes_of(control.fp32_false_true(0));
    port.yes = bytes_of(control.fp32_false_true(1));
  } else {
    check_two(control.bool_false_true(), where + ": bool_false_true");
    port.datatype = DataType::TYPE_BOOL;
    port.no = bytes_of(control.bool_false_true(0));
    port.yes = bytes_of(control.bool_false_true(1));
  }
  const api::Port& bundle = ports[static_cast<size_t>(port.port)];
  if (dtype_of(port.datatype) != bundle.dtype || row_elements(bundle, batched_, where) != 1)
    throw Error(Code::kInvalidArgument, fmt::format("{}: one {} per row; the bundle has {}", where,
                                                    datatype_name(port.datatype), bundle.str()));
  controls_.push_back(std::move(port));
}

void SequencePorts::add_state(const inference::ModelSequenceBatching::State& state,
                              const std::vector<api::Port>& inputs, const std::vector<api::Port>& outputs,
                              const std::string& folder) {
  const std::string where = fmt::format("{}: state '{}'", where_, state.input_name());
  StatePort port{
      find(inputs, state.input_name(), where, "input"), find(outputs, state.output_name(), where, "output"), {}};
  const api::Port &in = inputs[static_cast<size_t>(port.input)], &out = outputs[static_cast<size_t>(port.output)];
  const uint64_t bytes = row_elements(in, batched_, where) * api::dtype_size(in.dtype);
  const size_t first = batched_ ? 1 : 0;
  const auto row_of = [&](const api::Port& port) {
    return std::vector<int64_t>(port.shape.begin() + static_cast<std::ptrdiff_t>(std::min(first, port.shape.size())),
                                port.shape.end());
  };
  const std::vector<int64_t> dims(state.dims().begin(), state.dims().end());
  if (in.dtype != out.dtype || row_of(in) != row_of(out) || dtype_of(state.data_type()) != in.dtype ||
      row_of(in) != dims)
    throw Error(Code::kInvalidArgument,
                fmt::format("{}: {} {}; the bundle has {} and {}", where, datatype_name(state.data_type()),
                            shape_text(dims), in.str(), out.str()));
  port.initial.assign(bytes, '\0');
  if (state.initial_state_size() > 1) throw Error(Code::kInvalidArgument, where + ": initial_state: it is there twice");
  if (state.initial_state_size() == 1 &&
      state.initial_state(0).state_data_case() == inference::ModelSequenceBatching::InitialState::kDataFile) {
    const std::string& file = state.initial_state(0).data_file();
    if (file.empty() || file.front() == '/' || file.find("..") != std::string::npos)
      throw Error(Code::kInvalidArgument, where + ": data_file '" + file + "'; it must be a file in initial_state/");
    std::ifstream data(folder + "/initial_state/" + file, std::ios::binary);
    port.initial.assign(std::istreambuf_iterator<char>(data), {});
    if (!data || port.initial.size() != bytes)
      throw Error(Code::kInvalidArgument, fmt::format("{}: data_file '{}': {} bytes in initial_state/; must be {}",
                                                      where, file, port.initial.size(), bytes));
  }
  states_.push_back(std::move(port));
}

void SequencePorts::check(const Job& job) const {
  if (std::holds_alternative<uint64_t>(job.options.sequence_id)) return;
  for (const ControlPort& control : controls_)
    if (control.kind == Control::CONTROL_SEQUENCE_CORRID)
      throw Error(Code::kInvalidArgument, "infer: parameter 'sequence_id': text; the model takes a number");
}

void SequencePorts::fill(Job& job, const std::vector<api::Tensor>& state) const {
  const auto with_batch = [&](const api::Port& port) {
    std::vector<int64_t> shape = port.shape;
    if (batched_) shape[0] = 1;
    return shape;
  };
  for (const ControlPort& control : controls_) {
    std::string value = control.no;
    switch (control.kind) {
      case Control::CONTROL_SEQUENCE_START: value = job.options.sequence_start ? control.yes : control.no; break;
      case Control::CONTROL_SEQUENCE_END: value = job.options.sequence_end ? control.yes : control.no; break;
      case Control::CONTROL_SEQUENCE_READY: value = control.yes; break;
      default: {
        if (const auto* number = std::get_if<uint64_t>(&job.options.sequence_id))
          std::memcpy(value.data(), number, value.size());
      }
    }
    const api::Port& port = inputs_[static_cast<size_t>(control.port)];
    api::Tensor tensor(port.dtype, with_batch(port));
    std::memcpy(tensor.raw(), value.data(), value.size());
    job.inputs[static_cast<size_t>(control.port)] = std::move(tensor);
  }
  for (size_t s = 0; s < states_.size(); ++s) {
    const StatePort& of = states_[s];
    // A copy: the step may write to it, and if it fails the sequence goes on from here.
    const api::Port& port = inputs_[static_cast<size_t>(of.input)];
    api::Tensor tensor(port.dtype, with_batch(port));
    if (!of.initial.empty())
      std::memcpy(tensor.raw(), s < state.size() ? state[s].raw() : of.initial.data(), of.initial.size());
    job.inputs[static_cast<size_t>(of.input)] = std::move(tensor);
  }
}

void SequencePorts::fill_empty(int port, uint8_t* to, size_t row_bytes, size_t rows) const {
  for (const ControlPort& control : controls_)
    if (control.port == port)
      for (size_t r = 0; r < rows; ++r)
        std::memcpy(to + r * row_bytes, control.no.data(), std::min(row_bytes, control.no.size()));
}

}  // namespace sluice::serving
