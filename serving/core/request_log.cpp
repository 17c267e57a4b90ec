#include "serving/core/request_log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <random>

#include "serving/core/json_string.h"

namespace sluice::serving {

namespace {

std::string json_of(const Parameter& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return json_string(*text);
  if (const auto* b = std::get_if<bool>(&value)) return *b ? "true" : "false";
  if (const auto* i = std::get_if<int64_t>(&value)) return fmt::format("{}", *i);
  if (const auto* u = std::get_if<uint64_t>(&value)) return fmt::format("{}", *u);
  return fmt::format("{}", std::get<double>(value));
}

std::string head_of(const InferRequest& request) {
  std::string head = "{\"id\":" + json_string(request.id) + ",\"parameters\":{";
  const char* comma = "";
  for (const auto& [name, value] : request.parameters) {
    if (name == "binary_data_output") continue;
    head += comma + json_string(name) + ":" + json_of(value);
    comma = ",";
  }
  head += fmt::format("{}\"binary_data_output\":true}},\"inputs\":[", comma);
  comma = "";
  for (const Tensor& input : request.inputs) {
    head +=
        fmt::format(R"({}{{"name":{},"datatype":"{}","shape":[{}],"parameters":{{"binary_data_size":{}}}}})", comma,
                    json_string(input.name), datatype_name(input.datatype), fmt::join(input.shape, ","), input.bytes);
    comma = ",";
  }
  head += "]";
  if (!request.outputs.empty()) head += ",\"outputs\":[";
  comma = "";
  for (const RequestedOutput& output : request.outputs) {
    head += fmt::format(R"({}{{"name":{},"parameters":{{"binary_data":true)", comma, json_string(output.name));
    if (output.classes > 0) head += fmt::format(",\"classification\":{}", output.classes);
    head += "}}";
    comma = ",";
  }
  return head + (request.outputs.empty() ? "}" : "]}");
}

}  // namespace

std::string request_record(const InferRequest& request) {
  const std::string head = head_of(request);
  size_t bytes = head.size();
  for (const Tensor& input : request.inputs) bytes += input.bytes;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::string record =
      fmt::format(R"({{"model":{},"version":{},"time_ms":{},"header_bytes":{},"bytes":{}}})"
                  "\n",
                  json_string(request.model), json_string(request.version),
                  std::chrono::duration_cast<std::chrono::milliseconds>(now).count(), head.size(), bytes);
  record.reserve(record.size() + bytes + 1);
  record += head;
  for (const Tensor& input : request.inputs)
    if (input.bytes > 0) record.append(static_cast<const char*>(input.data.get()), input.bytes);
  return record + "\n";
}

RequestLog::RequestLog(const RequestLogOptions& options)
    : share_(options.share), file_(options.file, RecordFile::Format{}, options.max_bytes) {
  if (!(share_ > 0 && share_ <= 1))
    throw Error(Code::kInvalidArgument, fmt::format("request log: share {}; it must be above 0 and at most 1", share_));
}

void RequestLog::maybe_add(const InferRequest& request) {
  thread_local std::minstd_rand random{std::random_device{}()};
  if (std::uniform_real_distribution<double>()(random) < share_) file_.add(request_record(request));
}

}  // namespace sluice::serving
