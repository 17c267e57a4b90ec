// BYTES: texts and files, as the bundle's bytes, and how long they are.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "serving/execution/parameters.h"
#include "serving/execution/ports.h"

namespace sluice::serving {

namespace {

// The start of each element's content, and its length.
std::vector<std::pair<size_t, uint32_t>> elements_of(const Tensor& given, const std::string& here) {
  std::vector<std::pair<size_t, uint32_t>> elements;
  const auto* const data = static_cast<const uint8_t*>(given.data.get());
  for (size_t at = 0; at < given.bytes;) {
    uint32_t length = 0;
    if (given.bytes - at < sizeof length) wrong(here + ": its bytes end within the length of an element");
    std::memcpy(&length, data + at, sizeof length);
    at += sizeof length;
    if (length > given.bytes - at) wrong(here + ": its bytes end within an element");
    elements.emplace_back(at, length);
    at += length;
  }
  return elements;
}

}  // namespace

// Which ports of the bundle have the lengths of which strings: a whole number for each row, or one.
void ModelPorts::find_lengths(const inference::ModelConfig& config) {
  const auto find = [](const std::vector<api::Port>& ports, const std::string& name) {
    const auto found = std::find_if(ports.begin(), ports.end(), [&](const auto& port) { return port.name == name; });
    return found == ports.end() ? -1 : static_cast<int>(found - ports.begin());
  };
  for (const auto& [name, lengths] : string_lengths_of(config)) {
    const std::string here = fmt::format("model '{}': parameters.string_lengths: '{}:{}'", model_, name, lengths);
    const auto is = [&, of = name](const ShownPort& port) { return port.name == of || port.bundle.name == of; };
    const auto input = std::find_if(inputs_.begin(), inputs_.end(), is);
    const auto output = std::find_if(outputs_.begin(), outputs_.end(), is);
    const bool in = input != inputs_.end();
    if (!in && output == outputs_.end()) wrong(here + ": the model has no input or output of the first name");
    ShownPort& port = in ? *input : *output;
    if (port.datatype != DataType::TYPE_STRING || port.files > 0)
      wrong(here + ": the first must be of TYPE_STRING, and no files");
    const std::vector<api::Port>& ports = in ? bundle_inputs_ : bundle_outputs_;
    port.lengths = find(ports, lengths);
    if (port.lengths < 0) wrong(fmt::format("{}: the bundle has no {} '{}'", here, in ? "input" : "output", lengths));
    const api::Port& bundle = ports[static_cast<size_t>(port.lengths)];
    const size_t rank = bundle.shape.size(), first = max_batch_ > 0 ? 1 : 0;
    const bool whole = bundle.dtype == api::DType::kInt32 || bundle.dtype == api::DType::kInt64;
    if (!whole || rank < first || rank > first + 1 || (rank > first && bundle.shape.back() != 1))
      wrong(fmt::format("{}: the bundle has {}; it must be of int32 or int64, with one element{}", here, bundle.str(),
                        first > 0 ? " for each row" : ""));
    const bool given = in && std::any_of(inputs_.begin(), inputs_.end(),
                                         [&](const ShownPort& other) { return other.port == port.lengths; });
    if (given) wrong(fmt::format("{}: '{}' is an input of clients, too", here, lengths));
  }
}

api::Tensor ModelPorts::lengths_of(const ShownPort& port, const Tensor& given) const {
  const api::Port& bundle = bundle_inputs_[static_cast<size_t>(port.lengths)];
  std::vector<int64_t> shape = bundle.shape;
  if (max_batch_ > 0) shape[0] = given.shape[0];
  api::Tensor tensor(bundle.dtype, std::move(shape));
  size_t at = 0;
  for (const auto& [begin, length] : elements_of(given, given.name)) {
    if (bundle.dtype == api::DType::kInt32)
      tensor.data<int32_t>()[at++] = static_cast<int32_t>(length);
    else
      tensor.data<int64_t>()[at++] = length;
  }
  return tensor;
}

// Rows of bytes as elements: as long as the bundle tells, or as the row is.
void ModelPorts::show_strings(const OutputRows& of, Tensor& tensor) const {
  const bool batched = max_batch_ > 0;
  const size_t rows = batched ? static_cast<size_t>(of.rows) : 1, first = batched ? static_cast<size_t>(of.start) : 0;
  const auto row = static_cast<size_t>(of.whole.shape().back());
  const auto* const data = static_cast<const uint8_t*>(of.whole.raw()) + first * row;
  const auto length_of = [&](size_t r) {
    if (of.lengths == nullptr) return row;
    const int64_t length = of.lengths->dtype() == api::DType::kInt32 ? of.lengths->data<int32_t>()[first + r]
                                                                     : of.lengths->data<int64_t>()[first + r];
    if (length < 0 || static_cast<uint64_t>(length) > row)
      throw Error(Code::kInternal,
                  fmt::format("infer: output '{}' of model '{}': the bundle tells that a string has {} "
                              "bytes; its row has {}",
                              of.port.name, model_, length, row));
    return static_cast<size_t>(length);
  };
  for (size_t r = 0; r < rows; ++r) tensor.bytes += sizeof(uint32_t) + length_of(r);
  tensor.data = BufferPool(0).take(tensor.bytes);
  auto* to = static_cast<uint8_t*>(tensor.data.get());
  for (size_t r = 0; r < rows; ++r) {
    const auto length = static_cast<uint32_t>(length_of(r));
    std::memcpy(to, &length, sizeof length);
    if (length > 0) std::memcpy(to + sizeof length, data + r * row, length);
    to += sizeof length + length;
  }
  if (batched) tensor.shape.push_back(of.rows);
  tensor.shape.push_back(1);
}

// One element, or one per row, filled up with zeros to the longest: its content is the port's.
api::Tensor ModelPorts::input_bytes(const ShownPort& port, const Tensor& given) const {
  const std::string here = fmt::format("infer: input '{}' for model '{}'", given.name, model_);
  const std::vector<std::pair<size_t, uint32_t>> elements = elements_of(given, here);
  const auto* const data = static_cast<const uint8_t*>(given.data.get());
  if (port.files > 0) return pack_files(port, given, elements);
  uint64_t expected = 1;
  for (const int64_t d : given.shape) expected *= static_cast<uint64_t>(d);
  const int64_t rows = max_batch_ > 0 ? given.shape[0] : 1;
  if (elements.size() != expected || expected != static_cast<uint64_t>(rows))
    wrong(fmt::format("{}: {} elements of shape {}; it takes one{}", here, elements.size(), shape_text(given.shape),
                      max_batch_ > 0 ? " per row of the batch" : ""));
  const size_t axis = max_batch_ > 0 ? 1 : 0;
  const int64_t most = port.bundle.shape[axis];
  uint32_t longest = 0;
  for (const auto& [at, length] : elements) longest = std::max(longest, length);
  if (longest > most) wrong(fmt::format("{}: an element of {} bytes; at most {} are allowed", here, longest, most));
  const bool varies = axis < port.bundle.dims.size() && !port.bundle.dims[axis].empty();
  const int64_t length = varies ? std::max<int64_t>(longest, 1) : most;
  if (max_batch_ == 0 && length == longest) {
    const auto content = static_cast<uint8_t*>(given.data.get()) + elements[0].first;
    return {api::DType::kUInt8, {length}, std::shared_ptr<void>(given.data, content)};
  }
  api::Tensor tensor(api::DType::kUInt8, max_batch_ > 0 ? std::vector<int64_t>{rows, length} : std::vector{length});
  for (size_t r = 0; r < elements.size(); ++r)
    if (elements[r].second > 0)
      std::memcpy(tensor.data<uint8_t>() + r * static_cast<size_t>(length), data + elements[r].first,
                  elements[r].second);
  return tensor;
}

// Lays the files as base/files/packed_files.h does: for each, where its name and its content begin, and how long they
// are. Without names.
api::Tensor ModelPorts::pack_files(const ShownPort& port, const Tensor& given,
                                   const std::vector<std::pair<size_t, uint32_t>>& elements) const {
  const std::string here = fmt::format("infer: input '{}' for model '{}'", given.name, model_);
  constexpr size_t kHead = 32;
  uint64_t expected = 1;
  for (const int64_t d : given.shape) expected *= static_cast<uint64_t>(d);
  if (elements.size() != expected || elements.empty() || expected > static_cast<uint64_t>(port.files))
    wrong(fmt::format("{}: {} elements of shape {}; it takes 1 to {} files", here, elements.size(),
                      shape_text(given.shape), port.files));
  api::Tensor tensor(api::DType::kUInt8, port.bundle.shape);
  size_t at = kHead * static_cast<size_t>(port.files);
  for (size_t e = 0; e < elements.size(); ++e) {
    const auto [from, length] = elements[e];
    if (at > tensor.bytes() || length > tensor.bytes() - at || length == 0)
      wrong(fmt::format("{}: a file of {} bytes; the files must have content, and at most {} bytes together", here,
                        length, tensor.bytes() - std::min(tensor.bytes(), kHead * static_cast<size_t>(port.files))));
    const int64_t head[4] = {0, 0, static_cast<int64_t>(at), static_cast<int64_t>(length)};
    std::memcpy(tensor.data<uint8_t>() + e * kHead, head, sizeof head);
    std::memcpy(tensor.data<uint8_t>() + at, static_cast<const uint8_t*>(given.data.get()) + from, length);
    at += length;
  }
  return tensor;
}

std::map<std::string, int64_t> inputs_of_files(const std::string& bundle) {
  std::map<std::string, int64_t> files;
  std::map<std::string, std::string> inputs;  // "%0": its name
  std::ifstream graph(bundle + "/graph.txt");
  if (!graph) graph.open(bundle + "/members/0/graph.txt");
  for (std::string line; std::getline(graph, line);) {
    const size_t id = line.find('%'), input = line.find(" = input \"");
    if (input != std::string::npos && id < input) {
      const size_t begin = input + 10;
      inputs[line.substr(id, input - id)] = line.substr(begin, line.find('"', begin) - begin);
    }
    size_t begin = std::string::npos;
    for (const std::string_view op : {" = decode_jpeg(", " = decode_image("})
      if (const size_t at = line.find(op); at != std::string::npos) begin = at + op.size();
    if (begin == std::string::npos) continue;
    const auto found = inputs.find(line.substr(begin, line.find_first_of(",)", begin) - begin));
    const size_t count = line.find("count = ", begin);
    if (found != inputs.end())
      files[found->second] =
          count == std::string::npos ? 1 : std::max(1L, std::strtol(line.c_str() + count + 8, nullptr, 10));
  }
  return files;
}

}  // namespace sluice::serving
