// Inputs of BYTES: texts and files, as the bundle's bytes.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "serving/execution/ports.h"

namespace sluice::serving {

// One element, or one per row, filled up to the longest: its content is the port's.
api::Tensor ModelPorts::input_bytes(const ShownPort& port, const Tensor& given) const {
  const std::string here = fmt::format("infer: input '{}' for model '{}'", given.name, model_);
  std::vector<std::pair<size_t, uint32_t>> elements;  // where, and how long
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
  if (longest > most || longest == 0)
    wrong(fmt::format("{}: an element of {} bytes; it must be of 1 to {}", here, longest, most));
  const int64_t length = (axis < port.bundle.dims.size() && !port.bundle.dims[axis].empty()) ? longest : most;
  if (max_batch_ == 0 && length == longest) {
    const auto content = static_cast<uint8_t*>(given.data.get()) + elements[0].first;
    return {api::DType::kUInt8, {length}, std::shared_ptr<void>(given.data, content)};
  }
  api::Tensor tensor(api::DType::kUInt8, max_batch_ > 0 ? std::vector<int64_t>{rows, length} : std::vector{length});
  for (size_t r = 0; r < elements.size(); ++r)
    std::memcpy(tensor.data<uint8_t>() + r * static_cast<size_t>(length), data + elements[r].first, elements[r].second);
  return tensor;
}

// As base/packed_files.h lays them: of each, where its name and its content begin, and how long they are. Without
// names.
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
    const size_t op = line.find(" = decode_jpeg(");
    if (op == std::string::npos) continue;
    const size_t begin = op + 15;
    const auto found = inputs.find(line.substr(begin, line.find_first_of(",)", begin) - begin));
    const size_t count = line.find("count = ", begin);
    if (found != inputs.end())
      files[found->second] =
          count == std::string::npos ? 1 : std::max(1L, std::strtol(line.c_str() + count + 8, nullptr, 10));
  }
  return files;
}

}  // namespace sluice::serving
