#include "tools/sluice_perf/inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/json.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>

namespace sluice::perf {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

struct Input {
  const ModelTensor& info;
  std::vector<int64_t> shape;
  std::string bytes;
};

size_t size_of(const std::string& datatype) {
  static const std::map<std::string, size_t> sizes = {
      {"BOOL", 1},  {"UINT8", 1}, {"UINT16", 2}, {"UINT32", 4}, {"UINT64", 8}, {"INT8", 1}, {"INT16", 2},
      {"INT32", 4}, {"INT64", 8}, {"FP16", 2},   {"BF16", 2},   {"FP32", 4},   {"FP64", 8}, {"BYTES", 0}};
  const auto found = sizes.find(datatype);
  if (found == sizes.end()) throw std::runtime_error(fmt::format("datatype '{}' is not known here", datatype));
  return found->second;
}

// Bits of a 16-bit float; the numbers sent here are small, so that no rounding matters.
uint16_t half_of(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, 4);
  const int exponent = static_cast<int>((bits >> 23u) & 255u) - 112;
  if (exponent <= 0) return static_cast<uint16_t>((bits >> 16u) & 0x8000u);
  if (exponent >= 31) return static_cast<uint16_t>(((bits >> 16u) & 0x8000u) | 0x7c00u);
  return static_cast<uint16_t>(((bits >> 16u) & 0x8000u) | static_cast<uint32_t>(exponent) << 10u |
                               ((bits >> 13u) & 1023u));
}

template <class T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_number(std::string& bytes, const std::string& datatype, double value) {
  if (datatype == "FP32") return append(bytes, static_cast<float>(value));
  if (datatype == "FP64") return append(bytes, value);
  if (datatype == "FP16") return append(bytes, half_of(static_cast<float>(value)));
  if (datatype == "BF16") {
    uint32_t bits = 0;
    const auto single = static_cast<float>(value);
    std::memcpy(&bits, &single, 4);
    return append(bytes, static_cast<uint16_t>(bits >> 16u));
  }
  const auto whole = static_cast<int64_t>(value);
  bytes.append(reinterpret_cast<const char*>(&whole), size_of(datatype));  // little-endian
}

void append_string(std::string& bytes, std::string_view text) {
  append(bytes, static_cast<uint32_t>(text.size()));
  bytes += text;
}

std::vector<int64_t> shape_of(const ModelInfo& model, const ModelTensor& info, const InputOptions& options) {
  std::vector<int64_t> shape = info.shape;
  size_t first = 0;
  if (model.max_batch > 0) {
    if (options.batch > model.max_batch)
      throw std::runtime_error(
          fmt::format("batch {}: model '{}' takes at most {}", options.batch, model.name, model.max_batch));
    shape.at(0) = options.batch;
    first = 1;
  } else if (options.batch != 1 && (shape.empty() || shape[0] != -1)) {
    throw std::runtime_error(fmt::format("batch {}: input '{}' of model '{}' has a fixed shape [{}]", options.batch,
                                         info.name, model.name, fmt::join(shape, ",")));
  }
  if (const auto given = options.shapes.find(info.name); given != options.shapes.end()) {
    if (given->second.size() != shape.size() - first)
      throw std::runtime_error(fmt::format("--shape {}: {} dims; the model has {}, besides a batch", info.name,
                                           given->second.size(), shape.size() - first));
    std::copy(given->second.begin(), given->second.end(), shape.begin() + static_cast<long>(first));
  } else if (first == 0 && !shape.empty() && shape[0] == -1) {
    shape[0] = options.batch;
  }
  for (const int64_t dim : shape)
    if (dim < 0)
      throw std::runtime_error(
          fmt::format("input '{}' has the shape [{}], with dims of any size; say which, as in "
                      "--shape {}:3,224,224",
                      info.name, fmt::join(info.shape, ","), info.name));
  return shape;
}

uint64_t elements_of(const std::vector<int64_t>& shape) {
  uint64_t n = 1;
  for (const int64_t dim : shape)
    if (__builtin_mul_overflow(n, static_cast<uint64_t>(dim), &n) || n > uint64_t{1} << 32u)
      throw std::runtime_error(fmt::format("shape [{}] is too large", fmt::join(shape, ",")));
  return n;
}

void fill(Input& input, bool zero, const InputOptions& options, std::mt19937_64& random) {
  const std::string& type = input.info.datatype;
  const uint64_t n = elements_of(input.shape);
  if (type == "BYTES") {
    std::uniform_int_distribution<int> letter('a', 'z');
    for (uint64_t i = 0; i < n; ++i) {
      std::string text(zero ? 0 : options.string_length, 'a');
      for (char& c : text) c = static_cast<char>(letter(random));
      append_string(input.bytes, text);
    }
    return;
  }
  if (zero) {
    input.bytes.assign(n * size_of(type), '\0');
    return;
  }
  const bool floating = type == "FP32" || type == "FP64" || type == "FP16" || type == "BF16";
  std::uniform_real_distribution<double> real(0, 1);
  std::uniform_int_distribution<int> whole(0, type == "BOOL" ? 1 : 9);  // small: they may be indices
  input.bytes.reserve(n * size_of(type));
  for (uint64_t i = 0; i < n; ++i) append_number(input.bytes, type, floating ? real(random) : whole(random));
}

std::string file_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw std::runtime_error(fmt::format("file '{}' cannot be read", path.string()));
  return text.str();
}

void flatten(std::string& bytes, const std::string& datatype, const json::value& value) {
  if (value.is_array()) {
    for (const json::value& item : value.as_array()) flatten(bytes, datatype, item);
  } else if (value.is_bool()) {
    append_number(bytes, datatype, value.as_bool() ? 1 : 0);
  } else if (value.is_string()) {
    append_string(bytes, value.as_string());
  } else {
    append_number(bytes, datatype, value.to_number<double>());
  }
}

// {"data": [{"INPUT_0": [..]}, ..]}: a request for each entry. An input may also be {"content": [..], "shape": [..]}.
std::vector<std::vector<Input>> from_json(const ModelInfo& model, const InputOptions& options) try {
  std::vector<std::vector<Input>> requests;
  const json::value all = json::parse(file_bytes(options.data));
  for (const json::value& entry : all.at("data").as_array()) {
    std::vector<Input> inputs;
    for (const ModelTensor& info : model.inputs) {
      const json::value* value = entry.as_object().if_contains(info.name);
      if (value == nullptr) throw std::runtime_error(fmt::format("an entry has no input '{}'", info.name));
      InputOptions own = options;
      if (value->is_object()) {
        if (const json::value* shape = value->as_object().if_contains("shape"))
          own.shapes[info.name] = json::value_to<std::vector<int64_t>>(*shape);
        value = &value->at("content");
      }
      Input input{info, shape_of(model, info, own), {}};
      flatten(input.bytes, info.datatype, *value);
      inputs.push_back(std::move(input));
    }
    requests.push_back(std::move(inputs));
  }
  if (requests.empty()) throw std::runtime_error("there is no entry");
  return requests;
} catch (const std::exception& e) {
  throw std::runtime_error(fmt::format("input data '{}': {}; it must be as in {{\"data\": [{{\"INPUT_0\": [1, 2]}}]}}",
                                       options.data, e.what()));
}

std::string http_request(const Target& target, const std::string& path, std::string_view headers, size_t head_bytes,
                         std::string_view body) {
  std::string request = fmt::format(
      "POST {}{} HTTP/1.1\r\nHost: {}:{}\r\nContent-Type: application/octet-stream\r\n"
      "Inference-Header-Content-Length: {}\r\nContent-Length: {}\r\n{}\r\n",
      target.base, path, target.host, target.port, head_bytes, body.size(), headers);
  request += body;
  return request;
}

std::string request_of(const Target& target, const std::vector<Input>& inputs, const InputOptions& options) {
  std::string head = R"({"parameters":{"binary_data_output":true},"inputs":[)";
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Input& input = inputs[i];
    const uint64_t bytes = elements_of(input.shape) * size_of(input.info.datatype);
    if (input.info.datatype != "BYTES" && bytes != input.bytes.size())
      throw std::runtime_error(fmt::format("input '{}': {} bytes are given; [{}] of {} has {}", input.info.name,
                                           input.bytes.size(), fmt::join(input.shape, ","), input.info.datatype,
                                           bytes));
    head += fmt::format(R"({}{{"name":{},"datatype":"{}","shape":[{}],"parameters":{{"binary_data_size":{}}}}})",
                        i == 0 ? "" : ",", json::serialize(json::value(input.info.name)), input.info.datatype,
                        fmt::join(input.shape, ","), input.bytes.size());
  }
  head += "]}";
  std::string body = head;
  for (const Input& input : inputs) body += input.bytes;
  return http_request(target, target.model_path() + "/infer", options.extra_headers, head.size(), body);
}

}  // namespace

std::vector<std::string> make_requests(const Target& target, const ModelInfo& model, const InputOptions& options) {
  std::vector<std::string> requests;
  const bool zero = options.data == "zero", random_data = options.data == "random";
  std::mt19937_64 random(options.seed);
  if (zero || random_data || fs::is_directory(options.data)) {
    std::vector<Input> inputs;
    for (const ModelTensor& info : model.inputs) {
      Input input{info, shape_of(model, info, options), {}};
      if (zero || random_data)
        fill(input, zero, options, random);
      else
        input.bytes = file_bytes(fs::path(options.data) / info.name);
      inputs.push_back(std::move(input));
    }
    return {request_of(target, inputs, options)};
  }
  for (const auto& inputs : from_json(model, options)) requests.push_back(request_of(target, inputs, options));
  return requests;
}

std::string get_request(const Target& target, const std::string& path, const std::string& extra_headers) {
  return fmt::format("GET {}{} HTTP/1.1\r\nHost: {}:{}\r\n{}\r\n", target.base, path, target.host, target.port,
                     extra_headers);
}

std::vector<std::string> logged_requests(const Target& target, const std::string& file) try {
  const std::string all = file_bytes(file);
  std::vector<std::string> requests;
  for (size_t at = 0; at < all.size();) {
    const size_t line = all.find('\n', at);
    if (line == std::string::npos) break;
    const json::value head = json::parse(std::string_view(all).substr(at, line - at));
    const auto bytes = head.at("bytes").to_number<size_t>();
    if (line + 1 + bytes > all.size()) break;  // the last one was being written
    Target own = target;
    own.model = head.at("model").as_string();
    own.version = head.at("version").as_string();
    requests.push_back(http_request(target, own.model_path() + "/infer", "",
                                    head.at("header_bytes").to_number<size_t>(),
                                    std::string_view(all).substr(line + 1, bytes)));
    at = line + 1 + bytes + 1;
  }
  if (requests.empty()) throw std::runtime_error("it has no request");
  return requests;
} catch (const std::exception& e) {
  throw std::runtime_error(fmt::format("request log '{}': {}", file, e.what()));
}

}  // namespace sluice::perf
