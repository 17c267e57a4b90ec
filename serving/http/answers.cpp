// The calls that are no inference.
#include <fmt/format.h>

#include <boost/json/serialize.hpp>
#include <limits>
#include <optional>

#include "serving/core/shared_memory.h"
#include "serving/http/base64.h"
#include "serving/http/json_body.h"
#include "serving/http/message_json.h"
#include "serving/http/routes.h"

namespace sluice::serving {

namespace {

namespace json = boost::json;

// The body of a request, as an object; an empty body is one, too.
class Asked {
 public:
  Asked(std::string_view text, const MemoryPtr& memory) {
    if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return;
    const InferLimits limits{std::numeric_limits<size_t>::max() / kMemoryOfInput, memory};
    body_.emplace(text, "request", limits);
  }
  const json::object& object() { return body_ ? body_->object() : none_; }
  const json::object& parameters() {
    const json::value* const parameters = object().if_contains("parameters");
    if (parameters == nullptr) return none_;
    if (!parameters->is_object()) throw HttpError(400, "request: 'parameters' must be an object");
    return parameters->get_object();
  }

 private:
  std::optional<JsonBody> body_;
  const json::object none_;
};

bool flag(const json::object& object, const char* name) {
  const json::value* const value = object.if_contains(name);
  if (value == nullptr) return false;
  if (!value->is_bool()) throw HttpError(400, fmt::format("request: '{}' must be true or false", name));
  return value->get_bool();
}

uint64_t number(const json::object& object, const char* name) {
  const json::value* const value = object.if_contains(name);
  if (value == nullptr) return 0;
  if (value->is_uint64()) return value->get_uint64();
  if (value->is_int64() && value->get_int64() >= 0) return static_cast<uint64_t>(value->get_int64());
  throw HttpError(400, fmt::format("request: '{}' must be a number that is not negative", name));
}

LoadOverrides overrides_of(const json::object& parameters) {
  LoadOverrides overrides;
  for (const auto& [key, value] : parameters) {
    const std::string name(key);
    if (!value.is_string()) throw HttpError(400, "load: parameter '" + name + "' must be a string");
    const std::string text(value.get_string());
    if (name == "config")
      overrides.config = text;
    else if (name.starts_with("file:"))
      overrides.files[name.substr(5)] = from_base64(text, "load: parameter '" + name + "'");
    else
      throw HttpError(400, "load: parameter '" + name + "'; known are config and file:<path>");
  }
  return overrides;
}

inference::TraceSettingRequest trace_request(const Route& route, const json::object& asked) {
  inference::TraceSettingRequest request;
  request.set_model_name(route.model);
  for (const auto& [key, value] : asked) {
    auto& setting = (*request.mutable_settings())[std::string(key)];
    const auto add = [&](const json::value& v) {
      setting.add_value(v.is_string() ? std::string(v.get_string()) : json::serialize(v));
    };
    if (value.is_array())
      for (const json::value& item : value.get_array()) add(item);
    else if (!value.is_null())
      add(value);
  }
  return request;
}

std::string trace_json(const inference::TraceSettingResponse& response) {
  json::object object;
  for (const auto& [name, setting] : response.settings()) {
    if (name == "trace_level") {
      json::array& levels = object[name].emplace_array();
      for (const std::string& level : setting.value()) levels.emplace_back(level);
    } else {
      object[name] = setting.value_size() > 0 ? setting.value(0) : std::string();
    }
  }
  return json::serialize(object);
}

inference::LogSettingsRequest log_request(const json::object& asked) {
  inference::LogSettingsRequest request;
  for (const auto& [key, value] : asked) {
    auto& setting = (*request.mutable_settings())[std::string(key)];
    if (value.is_bool())
      setting.set_bool_param(value.get_bool());
    else if (value.is_string())
      setting.set_string_param(std::string(value.get_string()));
    else if (value.is_int64() && value.get_int64() >= 0 && value.get_int64() <= UINT32_MAX)
      setting.set_uint32_param(static_cast<uint32_t>(value.get_int64()));
    else
      throw HttpError(400, "logging: '" + std::string(key) + "' must be true, false, a string or a small number");
  }
  return request;
}

std::string log_json(const inference::LogSettingsResponse& response) {
  using Value = inference::LogSettingsResponse::SettingValue;
  json::object object;
  for (const auto& [name, setting] : response.settings()) {
    if (setting.parameter_choice_case() == Value::kBoolParam) object[name] = setting.bool_param();
    if (setting.parameter_choice_case() == Value::kUint32Param) object[name] = setting.uint32_param();
    if (setting.parameter_choice_case() == Value::kStringParam) object[name] = setting.string_param();
  }
  return json::serialize(object);
}

// The messages of a list, without the message around it.
template <class Messages>
std::string list_json(const Messages& messages) {
  std::string out = "[";
  for (const auto& message : messages) out += (out.size() > 1 ? "," : "") + to_json(message);
  return out + "]";
}

std::string regions_json(const inference::SystemSharedMemoryStatusResponse& response) {
  std::string out = "[";
  for (const auto& [name, region] : response.regions()) out += (out.size() > 1 ? "," : "") + to_json(region);
  return out + "]";
}

inference::SystemSharedMemoryRegisterRequest register_request(const Route& route, const json::object& object) {
  const json::value* const key = object.if_contains("key");
  if (key == nullptr || !key->is_string()) throw HttpError(400, "shared memory: 'key' must be a string");
  inference::SystemSharedMemoryRegisterRequest request;
  request.set_name(route.region);
  request.set_key(std::string(key->get_string()));
  request.set_offset(number(object, "offset"));
  request.set_byte_size(number(object, "byte_size"));
  return request;
}

// The status of a model's versions as TensorFlow Serving tells it.
std::string status_json(const inference::RepositoryIndexResponse& index, const Route& route) {
  json::array versions;
  for (const auto& model : index.models()) {
    if (model.name() != route.model || (!route.version.empty() && model.version() != route.version)) continue;
    const bool ready = model.state() == "READY", wrong = model.state() == "UNAVAILABLE" && !model.reason().empty();
    json::object one;
    one["version"] = model.version();
    one["state"] = ready ? "AVAILABLE" : model.state() == "UNAVAILABLE" ? "END" : model.state();
    one["status"] = {{"error_code", wrong ? "UNKNOWN" : "OK"}, {"error_message", wrong ? model.reason() : ""}};
    versions.push_back(std::move(one));
  }
  if (versions.empty()) throw Error(Code::kNotFound, "Request for unknown model: '" + route.model + "' is not found");
  return json::serialize(json::object{{"model_version_status", std::move(versions)}});
}

HttpReply plain(int status) { return {status, ""}; }

HttpReply load(Server& server, const Route& route, std::string_view body, Asked& asked, const MemoryPtr& memory) {
  const Held files(memory, 3 * body.size());  // as text, as bytes, and as the repository reads them
  server.load(route.model, overrides_of(asked.parameters()));
  return plain(200);
}

HttpReply make_answer(Server& server, const Route& route, std::string_view body, const MemoryPtr& memory) {
  Asked asked(body, memory);
  switch (route.call) {
    case Call::kLive: return plain(server.live() ? 200 : 400);
    case Call::kReady: return plain(server.ready() ? 200 : 400);
    case Call::kModelReady:
      if (server.model_ready(route.model, route.version)) return plain(200);
      return error_reply(400, "model '" + route.model + "' is not ready");
    case Call::kServerMetadata: return {200, to_json(server.metadata())};
    case Call::kModelMetadata: return {200, to_json(server.model_metadata(route.model, route.version))};
    case Call::kModelConfig: return {200, to_json(server.model_config(route.model, route.version))};
    case Call::kStatistics: return {200, to_json(server.statistics(route.model, route.version))};
    case Call::kIndex: return {200, list_json(server.index(flag(asked.object(), "ready")).models())};
    case Call::kLoad: return load(server, route, body, asked, memory);
    case Call::kUnload: server.unload(route.model, flag(asked.parameters(), "unload_dependents")); return plain(200);
    case Call::kTraceSettings: return {200, trace_json(server.trace_settings(trace_request(route, asked.object())))};
    case Call::kLogSettings: return {200, log_json(server.log_settings(log_request(asked.object())))};
    case Call::kSharedMemoryStatus: return {200, regions_json(server.shared_memory(route.region))};
    case Call::kSharedMemoryRegister:
      server.register_shared_memory(register_request(route, asked.object()));
      return plain(200);
    case Call::kSharedMemoryUnregister: server.unregister_shared_memory(route.region); return plain(200);
    case Call::kCudaSharedMemory: throw no_cuda_memory();
    case Call::kMetrics: return {200, server.metrics(), "text/plain; version=0.0.4; charset=utf-8"};
    case Call::kModelStatus: return {200, status_json(server.index(false), route)};
    case Call::kInfer:
    case Call::kPredict:
    case Call::kGenerate:
    case Call::kGenerateStream: break;
  }
  throw HttpError(404, "Not Found");
}

}  // namespace

HttpReply answer(Server& server, const Route& route, std::string_view body, const MemoryPtr& memory) {
  try {
    return make_answer(server, route, body, memory);
  } catch (...) {
    return reply_of_current();
  }
}

}  // namespace sluice::serving
