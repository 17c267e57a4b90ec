#include "serving/execution/warmup.h"

#include <fmt/format.h>

#include <boost/json/parse.hpp>
#include <boost/json/value_to.hpp>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

namespace sluice::serving {

namespace {

namespace json = boost::json;
using Input = inference::ModelWarmup::Input;

constexpr std::streamoff kMostStored = 64 << 20;

json::value parsed(std::string_view text) {
  json::parse_options options;
  options.max_depth = 32;
  return json::parse({text.data(), text.size()}, {}, options);
}

std::string read_row(const std::string& folder, const std::string& file, const std::string& where) {
  if (file.empty() || file.front() == '/' || file.find("..") != std::string::npos)
    throw Error(Code::kInvalidArgument, where + ": input_data_file '" + file + "'; it must be a file in warmup/");
  std::ifstream in(folder + "/warmup/" + file, std::ios::binary);
  if (!in) throw Error(Code::kInvalidArgument, where + ": input_data_file '" + file + "': no such file in warmup/");
  return {std::istreambuf_iterator<char>(in), {}};
}

// Random inputs may be anything that every number of the type is: small whole numbers.
std::string random_row(DataType type, uint64_t bytes, uint32_t seed) {
  std::minstd_rand random(seed);
  std::string row(bytes, '\0');
  const size_t size = datatype_size(type);
  for (size_t at = 0; at + size <= row.size(); at += size) {
    const auto number = static_cast<int64_t>(random() % 2);
    const float single = static_cast<float>(random() % 1000) / 1000;
    const double twice = single;
    switch (type) {
      case DataType::TYPE_FP32: std::memcpy(&row[at], &single, sizeof single); break;
      case DataType::TYPE_FP64: std::memcpy(&row[at], &twice, sizeof twice); break;
      case DataType::TYPE_FP16: row[at + 1] = number != 0 ? 0x3c : 0; break;  // 1
      case DataType::TYPE_BF16: std::memcpy(&row[at], reinterpret_cast<const char*>(&single) + 2, 2); break;
      default: std::memcpy(&row[at], &number, std::min(size, sizeof number)); break;
    }
  }
  return row;
}

std::string row_of(const Input& input, DataType type, const std::string& folder, const std::string& where) {
  const std::vector<int64_t> dims(input.dims().begin(), input.dims().end());
  const bool text = type == DataType::TYPE_STRING;
  const uint64_t bytes = checked_bytes(dims, text ? 4 : datatype_size(type), where);
  switch (input.input_data_type_case()) {
    case Input::kZeroData: return std::string(bytes, '\0');
    case Input::kRandomData: return text ? std::string(bytes, '\0') : random_row(type, bytes, 1);
    case Input::kInputDataFile: {
      std::string row = read_row(folder, input.input_data_file(), where);
      if (!text && row.size() != bytes)
        throw Error(Code::kInvalidArgument,
                    fmt::format("{}: input_data_file '{}': {} bytes; {} of {} are {}", where, input.input_data_file(),
                                row.size(), shape_text(dims), datatype_name(type), bytes));
      return row;
    }
    default: throw Error(Code::kInvalidArgument, where + ": it has no data; give zero_data, random_data or a file");
  }
}

// The next record: a line of JSON, a head of JSON, and the tensors' bytes.
InferRequest stored_request(std::string_view& rest) {
  const size_t end = rest.find('\n');
  if (end == std::string_view::npos) wrong("its line does not end");
  const json::value line = parsed(rest.substr(0, end));
  const uint64_t head_bytes = json::value_to<uint64_t>(line.at("header_bytes"));
  const uint64_t bytes = json::value_to<uint64_t>(line.at("bytes"));
  rest.remove_prefix(end + 1);
  if (head_bytes > bytes || bytes >= rest.size() || rest[bytes] != '\n') wrong("it is cut off");
  const json::value head = parsed(rest.substr(0, head_bytes));
  InferRequest request;
  for (uint64_t at = head_bytes; const json::value& input : head.at("inputs").as_array()) {
    Tensor& tensor = request.inputs.emplace_back();
    tensor.name = json::value_to<std::string>(input.at("name"));
    tensor.datatype = datatype_of(json::value_to<std::string>(input.at("datatype")));
    tensor.shape = json::value_to<std::vector<int64_t>>(input.at("shape"));
    tensor.bytes = json::value_to<uint64_t>(input.at("parameters").at("binary_data_size"));
    if (tensor.bytes > bytes - at) wrong("it is cut off");
    tensor.data = BufferPool(0).take(tensor.bytes);
    if (tensor.bytes > 0) std::memcpy(tensor.data.get(), rest.data() + at, tensor.bytes);
    at += tensor.bytes;
  }
  rest.remove_prefix(bytes + 1);
  return request;
}

std::vector<InferRequest> stored_requests(const inference::ModelConfig& config, const std::string& folder) {
  const std::string here = fmt::format("model '{}': warmup/requests.log", config.name());
  std::ifstream in(folder + "/warmup/requests.log", std::ios::binary | std::ios::ate);
  if (!in) return {};
  if (in.tellg() > kMostStored)
    wrong(fmt::format("{}: {} bytes; at most {}", here, std::streamoff(in.tellg()), kMostStored));
  in.seekg(0);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  std::vector<InferRequest> requests;
  for (std::string_view rest = text; !rest.empty();) {
    try {
      requests.push_back(stored_request(rest));
    } catch (const std::exception& error) {
      wrong(fmt::format("{}: request {}: {}", here, requests.size() + 1, error.what()));
    }
    requests.back().model = config.name();
  }
  return requests;
}

}  // namespace

void for_stored_requests(const inference::ModelConfig& config, const std::string& folder,
                         const std::function<void(InferRequest request)>& use) {
  size_t number = 0;
  for (InferRequest& request : stored_requests(config, folder)) {
    ++number;
    try {
      use(std::move(request));
    } catch (const Error& error) {
      wrong(fmt::format("model '{}': warmup/requests.log: request {}: {}", config.name(), number, error.what()));
    }
  }
}

InferRequest warmup_request(const inference::ModelConfig& config, const inference::ModelWarmup& warmup,
                            const std::string& folder) {
  InferRequest request;
  request.model = config.name();
  const bool batched = config.max_batch_size() > 0;
  const uint32_t rows = std::max<uint32_t>(warmup.batch_size(), 1);
  const std::string here = fmt::format("model '{}': model_warmup '{}'", config.name(), warmup.name());
  if (rows > static_cast<uint32_t>(std::max(config.max_batch_size(), 1)))
    throw Error(Code::kInvalidArgument,
                fmt::format("{}: batch_size: {}; at most {}", here, rows, std::max(config.max_batch_size(), 1)));
  for (const auto& [name, input] : warmup.inputs()) {
    const std::string where = fmt::format("{}: input '{}'", here, name);
    const std::string row = row_of(input, input.data_type(), folder, where);
    Tensor& tensor = request.inputs.emplace_back();
    tensor.name = name;
    tensor.datatype = input.data_type();
    if (batched) tensor.shape.push_back(rows);
    tensor.shape.insert(tensor.shape.end(), input.dims().begin(), input.dims().end());
    tensor.bytes = row.size() * rows;
    tensor.data = BufferPool(0).take(tensor.bytes);
    for (uint32_t r = 0; r < rows && !row.empty(); ++r)
      std::memcpy(static_cast<char*>(tensor.data.get()) + r * row.size(), row.data(), row.size());
  }
  return request;
}

}  // namespace sluice::serving
