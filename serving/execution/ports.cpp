#include "serving/execution/ports.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace sluice::serving {

namespace {

bool varies(const api::Port& port, size_t axis) { return axis < port.dims.size() && !port.dims[axis].empty(); }

// The bundle's port that a config calls `name`: its own name, or its number behind `prefix`.
int find_port(const std::vector<api::Port>& ports, const std::string& name, const std::string& prefix) {
  for (size_t i = 0; i < ports.size(); ++i)
    if (ports[i].name == name) return static_cast<int>(i);
  for (size_t i = 0; i < ports.size(); ++i)
    if (name == prefix + std::to_string(i)) return static_cast<int>(i);
  return -1;
}

std::string names_of(const std::vector<api::Port>& ports) {
  std::string names;
  for (const api::Port& port : ports) names += (names.empty() ? "'" : ", '") + port.name + "'";
  return names.empty() ? "none" : names;
}

// A tensor of bytes whose length varies is what BYTES can be.
bool can_be_bytes(const api::Port& port, bool batched) {
  return port.dtype == api::DType::kUInt8 && port.shape.size() == (batched ? 2u : 1u);
}

void check_dtype(const std::string& where, DataType type, const api::Port& port, bool batched) {
  if (type == DataType::TYPE_STRING) {
    if (!can_be_bytes(port, batched))
      wrong(fmt::format("{}: data_type TYPE_STRING; the bundle has {}, and text needs an axis of uint8", where,
                        port.str()));
    return;
  }
  if (type == DataType::TYPE_INVALID) wrong(where + ": data_type: none; give the tensor's");
  if (dtype_of(type) != port.dtype)
    wrong(fmt::format("{}: data_type {}; the bundle has {}", where, datatype_name(type), api::dtype_name(port.dtype)));
}

void check_reshape(const std::string& where, const std::vector<int64_t>& dims, const std::vector<int64_t>& inner) {
  int64_t shown = 1, made = 1, open = 0, inner_open = 0;
  for (const int64_t d : dims) d < 0 ? ++open : shown *= d;
  for (const int64_t d : inner) d < 0 ? ++inner_open : made *= d;
  if (open != inner_open || shown != made)
    wrong(fmt::format("{}: reshape {}; it must have as many elements as dims {}, and as many open dims", where,
                      shape_text(inner), shape_text(dims)));
}

void check_dims(const std::string& where, const std::vector<int64_t>& inner, const api::Port& port, size_t first) {
  const std::vector<int64_t> bundle(
      port.shape.begin() + static_cast<std::ptrdiff_t>(std::min(first, port.shape.size())), port.shape.end());
  bool fits = inner.size() == bundle.size();
  for (size_t a = 0; fits && a < inner.size(); ++a) {
    const bool open = varies(port, a + first);
    fits = inner[a] < 0 ? open : (open ? inner[a] <= bundle[a] : inner[a] == bundle[a]);
  }
  if (!fits)
    wrong(fmt::format("{}: dims {}{}; the bundle has {}", where, shape_text(inner),
                      first > 0 ? " behind the batch" : "", port.str()));
}

std::vector<int64_t> dims_of(const google::protobuf::RepeatedField<int64_t>& dims) {
  return {dims.begin(), dims.end()};
}

// The shape behind a reshape: open dims keep their order.
std::vector<int64_t> reshaped(const std::vector<int64_t>& got, const std::vector<int64_t>& from,
                              const std::vector<int64_t>& to) {
  std::vector<int64_t> open;
  for (size_t a = 0; a < from.size(); ++a)
    if (from[a] < 0) open.push_back(got[a]);
  std::vector<int64_t> shape;
  size_t next = 0;
  for (const int64_t d : to) shape.push_back(d < 0 ? open[next++] : d);
  return shape;
}

std::vector<std::string> read_labels(const std::string& folder, const std::string& file, const std::string& where) {
  if (file.empty()) return {};
  if (file.find("..") != std::string::npos || file.front() == '/')
    wrong(where + ": label_filename '" + file + "'; it must be a file in the model's folder");
  std::ifstream in(folder + "/" + file);
  if (!in) wrong(where + ": label_filename '" + file + "': no such file in the model's folder");
  std::vector<std::string> labels;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    labels.push_back(line);
  }
  return labels;
}

}  // namespace

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

uint64_t checked_bytes(const std::vector<int64_t>& shape, size_t element, const std::string& where) {
  uint64_t bytes = element;
  bool none = false;
  for (const int64_t d : shape) {
    if (d < 0) wrong(fmt::format("{}: shape {}; dims must not be negative", where, shape_text(shape)));
    none = none || d == 0;
  }
  if (none) return 0;
  for (const int64_t d : shape)
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(d), &bytes) || bytes > (uint64_t{1} << 48))
      throw Error(Code::kTooLarge,
                  fmt::format("{}: shape {}; it must be less than 2^48 bytes", where, shape_text(shape)));
  return bytes;
}

ModelPorts::ModelPorts(const inference::ModelConfig& config, const std::vector<api::Port>& inputs,
                       const std::vector<api::Port>& outputs, const std::string& folder, PortRoles roles)
    : model_(config.name()),
      roles_(std::move(roles)),
      bundle_inputs_(inputs),
      bundle_outputs_(outputs),
      max_batch_(config.max_batch_size()) {
  if (max_batch_ < 0) wrong(fmt::format("model '{}': max_batch_size: {}; must not be negative", model_, max_batch_));
  for (const inference::ModelInput& input : config.input()) add_input(input);
  for (const inference::ModelOutput& output : config.output()) add_output(output, folder);
  find_lengths(config);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool shown = std::any_of(inputs_.begin(), inputs_.end(), [&](const ShownPort& port) {
      return port.port == static_cast<int>(i) || port.lengths == static_cast<int>(i);
    });
    if (!shown && std::find(roles_.made.begin(), roles_.made.end(), inputs[i].name) == roles_.made.end())
      wrong(fmt::format("model '{}': the bundle takes {}; the config has no input for it", model_, inputs[i].str()));
  }
  if (outputs_.empty()) wrong(fmt::format("model '{}': the config has no output", model_));
  find_ragged_outputs(config);
  for (const ShownPort& port : outputs_)
    if (!port.ragged && port.datatype != DataType::TYPE_STRING)
      check_dims(where("output", port.name), port.inner, port.bundle, max_batch_ > 0 ? 1 : 0);
  check_batches();
}

std::string ModelPorts::where(const char* what, const std::string& name) const {
  return fmt::format("model '{}': {} '{}'", model_, what, name);
}

void ModelPorts::add_input(const inference::ModelInput& input) {
  ShownPort port;
  port.name = input.name();
  const std::string here = where("input", port.name);
  if (input.optional()) throw Error(Code::kUnsupported, here + ": optional; the bundle's plan reads it in every step");
  port.port = find_port(bundle_inputs_, port.name, "INPUT_");
  if (port.port < 0) wrong(fmt::format("{}: the bundle has none of this name: {}", here, names_of(bundle_inputs_)));
  port.bundle = bundle_inputs_[static_cast<size_t>(port.port)];
  port.datatype = input.data_type();
  port.dims = dims_of(input.dims());
  port.reshaped = input.has_reshape();
  port.inner = port.reshaped ? dims_of(input.reshape().shape()) : port.dims;
  check_dtype(here, port.datatype, port.bundle, max_batch_ > 0);
  // Bytes that clients lay out themselves could name files of the server's.
  if (const auto files = roles_.files.find(port.bundle.name); files != roles_.files.end()) {
    if (port.datatype != DataType::TYPE_STRING)
      wrong(here + ": decode_jpeg reads it; its data_type must be TYPE_STRING, of the content of a file each");
    port.files = files->second;
  }
  if (port.reshaped) check_reshape(here, port.dims, port.inner);
  if (input.allow_ragged_batch())
    add_ragged(input, port);
  else if (port.datatype != DataType::TYPE_STRING)
    check_dims(here, port.inner, port.bundle, max_batch_ > 0 ? 1 : 0);
  for (const ShownPort& other : inputs_)
    if (other.port == port.port) wrong(fmt::format("{}: '{}' is the same input of the bundle", here, other.name));
  inputs_.push_back(std::move(port));
}

void ModelPorts::add_output(const inference::ModelOutput& output, const std::string& folder) {
  ShownPort port;
  port.name = output.name();
  const std::string here = where("output", port.name);
  port.port = find_port(bundle_outputs_, port.name, "OUTPUT_");
  if (port.port < 0) wrong(fmt::format("{}: the bundle has none of this name: {}", here, names_of(bundle_outputs_)));
  port.bundle = bundle_outputs_[static_cast<size_t>(port.port)];
  port.datatype = output.data_type();
  port.dims = dims_of(output.dims());
  port.reshaped = output.has_reshape();
  port.inner = port.reshaped ? dims_of(output.reshape().shape()) : port.dims;
  port.labels = read_labels(folder, output.label_filename(), here);
  check_dtype(here, port.datatype, port.bundle, max_batch_ > 0);
  if (port.reshaped) check_reshape(here, port.dims, port.inner);
  for (const ShownPort& other : outputs_)
    if (other.name == port.name) wrong(here + ": it is there twice");
  outputs_.push_back(std::move(port));
}

// With batches, the first axis of everything is the batch: all of one dim of the family, or all of one size.
void ModelPorts::check_batches() {
  if (max_batch_ == 0) return;
  std::string dim;
  const auto check = [&](const char* what, const api::Port& port, bool first) {
    const std::string here = where(what, port.name);
    if (port.shape.empty())
      wrong(fmt::format("{}: max_batch_size is {}; the bundle has {}, without an axis for the batch", here, max_batch_,
                        port.str()));
    const std::string of_port = varies(port, 0) ? port.dims[0] : "";
    if (first) {
      dim = of_port;
      fixed_rows_ = dim.empty() ? port.shape[0] : 0;
    }
    if (of_port != dim || (dim.empty() && port.shape[0] != fixed_rows_))
      wrong(fmt::format("{}: max_batch_size is {}; the first axis of {} is not the batch of the other tensors", here,
                        max_batch_, port.str()));
    if (port.shape[0] < max_batch_ && !dim.empty())
      wrong(fmt::format("{}: max_batch_size is {}; the bundle takes at most {} rows: {}", here, max_batch_,
                        port.shape[0], port.str()));
  };
  // In a model with ragged inputs, those that the server makes have lengths of their own.
  const auto has_batch = [&](size_t i) {
    const bool made = std::find(roles_.made.begin(), roles_.made.end(), bundle_inputs_[i].name) != roles_.made.end();
    const bool ragged = std::any_of(inputs_.begin(), inputs_.end(), [&](const ShownPort& port) {
      return port.ragged && port.port == static_cast<int>(i);
    });
    return ragged_.empty() || (!made && !ragged);
  };
  bool first = true;
  for (size_t i = 0; i < bundle_inputs_.size(); ++i) {
    if (!has_batch(i)) continue;
    check("input", bundle_inputs_[i], first);
    first = false;
  }
  for (const ShownPort& port : outputs_) {
    if (port.ragged) continue;
    check("output", port.bundle, first);
    first = false;
  }
}

ModelPorts::Prepared ModelPorts::prepare(InferRequest& request) const {
  Prepared prepared;
  prepared.inputs.resize(bundle_inputs_.size());
  std::vector<bool> given(inputs_.size(), false);
  int64_t rows = -1;
  for (Tensor& tensor : request.inputs) {
    const auto found = std::find_if(inputs_.begin(), inputs_.end(), [&](const ShownPort& port) {
      return port.name == tensor.name || port.bundle.name == tensor.name;
    });
    if (found == inputs_.end())
      wrong(fmt::format("infer: unexpected input '{}' for model '{}'", tensor.name.substr(0, 256), model_));
    const auto index = static_cast<size_t>(found - inputs_.begin());
    if (given[index]) wrong(fmt::format("infer: input '{}' for model '{}' is given twice", tensor.name, model_));
    given[index] = true;
    if (max_batch_ > 0) {
      const int64_t n = tensor.shape.empty() ? 0 : tensor.shape[0];
      if (rows >= 0 && n != rows)
        wrong(fmt::format("infer: input '{}' for model '{}': {} rows; the inputs before it have {}", tensor.name,
                          model_, n, rows));
      rows = n;
    }
    if (found->ragged) {
      prepared.ragged.resize(ragged_.size());
      const auto number = std::find(ragged_.begin(), ragged_.end(), index) - ragged_.begin();
      prepared.inputs[static_cast<size_t>(found->port)] =
          ragged_tensor(*found, tensor, prepared.ragged[static_cast<size_t>(number)]);
      continue;
    }
    prepared.inputs[static_cast<size_t>(found->port)] = input_tensor(*found, tensor);
    if (found->lengths >= 0) prepared.inputs[static_cast<size_t>(found->lengths)] = lengths_of(*found, tensor);
  }
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (!given[i])
      wrong(fmt::format("infer: expected {} inputs but got {} inputs for model '{}': '{}' is missing", inputs_.size(),
                        request.inputs.size(), model_, inputs_[i].name));
  prepared.rows = max_batch_ > 0 && rows >= 0 ? rows : 1;
  if (!ragged_.empty()) check_ragged(prepared);
  for (const RequestedOutput& wanted : request.outputs) {
    const auto found = std::find_if(outputs_.begin(), outputs_.end(), [&](const ShownPort& port) {
      return port.name == wanted.name || port.bundle.name == wanted.name;
    });
    if (found == outputs_.end())
      wrong(fmt::format("infer: unexpected inference output '{}' for model '{}'", wanted.name.substr(0, 256), model_));
    const auto index = static_cast<int>(found - outputs_.begin());
    if (std::find(prepared.outputs.begin(), prepared.outputs.end(), index) != prepared.outputs.end())
      wrong(fmt::format("infer: output '{}' of model '{}' is asked for twice", wanted.name, model_));
    prepared.outputs.push_back(index);
  }
  if (request.outputs.empty())
    for (size_t i = 0; i < outputs_.size(); ++i) prepared.outputs.push_back(static_cast<int>(i));
  return prepared;
}

api::Tensor ModelPorts::input_tensor(const ShownPort& port, Tensor& given) const {
  const std::string here = fmt::format("infer: input '{}' for model '{}'", given.name, model_);
  if (given.datatype != port.datatype)
    wrong(fmt::format("{}: datatype is {}; must be {}", here,
                      given.datatype == DataType::TYPE_INVALID ? "none" : datatype_name(given.datatype),
                      datatype_name(port.datatype)));
  const size_t first = max_batch_ > 0 ? 1 : 0;
  const bool text = port.datatype == DataType::TYPE_STRING;
  const uint64_t bytes = checked_bytes(given.shape, text ? 1 : datatype_size(port.datatype), here);
  bool fits = given.shape.size() == port.dims.size() + first;
  for (size_t a = 0; fits && a < port.dims.size(); ++a)
    fits = port.dims[a] < 0 || port.dims[a] == given.shape[a + first];
  if (!fits || (first > 0 && (given.shape[0] < 1 || given.shape[0] > max_batch_))) {
    std::vector<int64_t> wanted = port.dims;
    if (first > 0) wanted.insert(wanted.begin(), -1);
    wrong(fmt::format("{}: shape is {}; must be {}{}", here, shape_text(given.shape), shape_text(wanted),
                      first > 0 ? fmt::format(" with a batch of 1 to {}", max_batch_) : ""));
  }
  if (text) return input_bytes(port, given);
  if (bytes != given.bytes)
    wrong(fmt::format("{}: {} bytes; shape {} of {} has {}", here, given.bytes, shape_text(given.shape),
                      datatype_name(port.datatype), bytes));
  std::vector<int64_t> shape(given.shape.begin() + static_cast<std::ptrdiff_t>(first), given.shape.end());
  if (port.reshaped) shape = reshaped(shape, port.dims, port.inner);
  for (size_t a = 0; a < shape.size(); ++a)
    if (shape[a] > port.bundle.shape[a + first])
      wrong(fmt::format("{}: shape is {}; the model takes at most {} at axis {}", here, shape_text(given.shape),
                        port.bundle.shape[a + first], a + first));
  if (first > 0) shape.insert(shape.begin(), given.shape[0]);
  return {port.bundle.dtype, std::move(shape), std::move(given.data)};
}

uint64_t ModelPorts::result_bytes(int64_t rows, const std::vector<RaggedInput>& ragged) const {
  uint64_t all = 0;
  for (size_t b = 0; b < bundle_outputs_.size(); ++b) {
    std::vector<int64_t> shape = bundle_outputs_[b].shape;
    const auto shown = std::find_if(outputs_.begin(), outputs_.end(), [&](const ShownPort& port) {
      return port.ragged && port.port == static_cast<int>(b);
    });
    if (max_batch_ > 0 && !shape.empty())
      shape[0] = shown == outputs_.end()          ? rows
                 : shown->scatter < ragged.size() ? ragged[shown->scatter].rows
                                                  : shape[0];
    all += checked_bytes(shape, api::dtype_size(bundle_outputs_[b].dtype), model_);
  }
  return all;
}

Tensor ModelPorts::show(const OutputRows& of) const {
  const ShownPort& port = of.port;
  const std::vector<int64_t>& whole = of.whole.shape();
  Tensor tensor;
  tensor.name = port.name;
  tensor.datatype = port.datatype;
  if (port.ragged) {
    show_ragged(of, tensor);
    return tensor;
  }
  const size_t first = max_batch_ > 0 ? 1 : 0;
  std::vector<int64_t> inner(whole.begin() + static_cast<std::ptrdiff_t>(first), whole.end());
  size_t row = api::dtype_size(of.whole.dtype());
  for (const int64_t d : inner) row *= static_cast<size_t>(d);
  auto* const data = static_cast<uint8_t*>(of.whole.raw()) + (first > 0 ? row * static_cast<size_t>(of.start) : 0);
  const size_t rows = first > 0 ? static_cast<size_t>(of.rows) : 1;
  if (port.datatype == DataType::TYPE_STRING) {
    show_strings(of, tensor);
    return tensor;
  }
  if (port.reshaped) inner = reshaped(inner, port.inner, port.dims);
  tensor.shape = std::move(inner);
  if (first > 0) tensor.shape.insert(tensor.shape.begin(), of.rows);
  tensor.bytes = rows * row;
  if (tensor.bytes > 0) tensor.data = std::shared_ptr<void>(of.whole.shared(), data);
  return tensor;
}

}  // namespace sluice::serving
