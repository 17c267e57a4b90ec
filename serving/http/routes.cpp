#include "serving/http/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "serving/core/json_string.h"

namespace sluice::serving {

namespace {

struct Pattern {
  // "*m", "*v", "*r": a model, a version, a region of shared memory; what stands behind a ':' is the same there.
  const char* path;
  Call call;
  const char* gets;   // methods that only look
  const char* posts;  // and that change the server
  bool slow = false;
};
// If two match, the first counts.
constexpr Pattern kPatterns[] = {
    {"v2", Call::kServerMetadata, "GET", ""},
    {"v2/health/live", Call::kLive, "GET", ""},
    {"v2/health/ready", Call::kReady, "GET", ""},
    {"v2/models/stats", Call::kStatistics, "GET", ""},
    {"v2/models/*m", Call::kModelMetadata, "GET", ""},
    {"v2/models/*m/ready", Call::kModelReady, "GET", ""},
    {"v2/models/*m/config", Call::kModelConfig, "GET", ""},
    {"v2/models/*m/stats", Call::kStatistics, "GET", ""},
    {"v2/models/*m/infer", Call::kInfer, "POST", ""},
    {"v2/models/*m/generate", Call::kGenerate, "POST", ""},
    {"v2/models/*m/generate_stream", Call::kGenerateStream, "POST", ""},
    {"v2/models/*m/versions/*v/generate", Call::kGenerate, "POST", ""},
    {"v2/models/*m/versions/*v/generate_stream", Call::kGenerateStream, "POST", ""},
    {"v2/models/*m/trace/setting", Call::kTraceSettings, "GET", "POST"},
    {"v2/models/*m/versions/*v", Call::kModelMetadata, "GET", ""},
    {"v2/models/*m/versions/*v/ready", Call::kModelReady, "GET", ""},
    {"v2/models/*m/versions/*v/config", Call::kModelConfig, "GET", ""},
    {"v2/models/*m/versions/*v/stats", Call::kStatistics, "GET", ""},
    {"v2/models/*m/versions/*v/infer", Call::kInfer, "POST", ""},
    {"v2/repository/index", Call::kIndex, "POST", ""},
    {"v2/repository/models/*m/load", Call::kLoad, "", "POST", true},
    {"v2/repository/models/*m/unload", Call::kUnload, "", "POST", true},
    {"v2/trace/setting", Call::kTraceSettings, "GET", "POST"},
    {"v2/logging", Call::kLogSettings, "GET", "POST"},
    {"v2/systemsharedmemory/status", Call::kSharedMemoryStatus, "GET", ""},
    {"v2/systemsharedmemory/unregister", Call::kSharedMemoryUnregister, "", "POST"},
    {"v2/systemsharedmemory/region/*r/status", Call::kSharedMemoryStatus, "GET", ""},
    {"v2/systemsharedmemory/region/*r/register", Call::kSharedMemoryRegister, "", "POST"},
    {"v2/systemsharedmemory/region/*r/unregister", Call::kSharedMemoryUnregister, "", "POST"},
    {"v2/cudasharedmemory/status", Call::kCudaSharedMemory, "GET", ""},
    {"v2/cudasharedmemory/unregister", Call::kCudaSharedMemory, "POST", ""},
    {"v2/cudasharedmemory/region/*r/status", Call::kCudaSharedMemory, "GET", ""},
    {"v2/cudasharedmemory/region/*r/register", Call::kCudaSharedMemory, "POST", ""},
    {"v2/cudasharedmemory/region/*r/unregister", Call::kCudaSharedMemory, "POST", ""},
    {"v1/models/*m:predict", Call::kPredict, "POST", ""},
    {"v1/models/*m/versions/*v:predict", Call::kPredict, "POST", ""},
    {"v1/models/*m/labels/*v:predict", Call::kPredict, "POST", ""},
    {"v1/models/*m", Call::kModelStatus, "GET", ""},
    {"v1/models/*m/versions/*v", Call::kModelStatus, "GET", ""},
};
constexpr Pattern kMetricsPatterns[] = {{"metrics", Call::kMetrics, "GET", ""}};

std::vector<std::string_view> segments_of(std::string_view path) {
  std::vector<std::string_view> segments;
  while (true) {
    const size_t slash = path.find('/');
    segments.push_back(path.substr(0, slash));
    if (slash == std::string_view::npos) return segments;
    path.remove_prefix(slash + 1);  // what stands behind the last one may be empty, and is another path then
  }
}

int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

std::string decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? hex(text[i + 1]) : -1, low = high < 0 ? -1 : hex(text[i + 2]);
    if (low < 0) throw HttpError(400, "request: its path has a '%' without two digits");
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

bool is_model_name(const std::string& name) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) != 0; };
  return !name.empty() && name.size() <= 128 && plain(name[0]) &&
         std::all_of(name.begin(), name.end(),
                     [&](unsigned char c) { return plain(c) || c == '.' || c == '_' || c == '-'; });
}

// Fills the names of `route`; false where the path is another.
bool matches(const Pattern& pattern, const std::vector<std::string_view>& path, Route& route) {
  const std::vector<std::string_view> wanted = segments_of(pattern.path);
  if (wanted.size() != path.size()) return false;
  for (size_t i = 0; i < path.size(); ++i)
    if (wanted[i][0] == '*' ? !path[i].ends_with(wanted[i].substr(2)) : wanted[i] != path[i]) return false;
  route = {};
  route.call = pattern.call;
  route.slow = pattern.slow;
  for (size_t i = 0; i < path.size(); ++i) {
    if (wanted[i][0] != '*') continue;
    std::string name = decoded(path[i].substr(0, path[i].size() - (wanted[i].size() - 2)));
    if (wanted[i][1] == 'r') {
      if (name.empty() || name.size() > 256 || !is_utf8(name))
        throw HttpError(400, "shared memory: a name has 1 to 256 characters of UTF-8");
      route.region = std::move(name);
      continue;
    }
    const bool version = wanted[i][1] == 'v';
    if (!is_model_name(name))
      throw HttpError(400,
                      fmt::format("request: {} {}; a name has letters, digits, '.', '_' and '-' alone, at most 128",
                                  version ? "version" : "model", json_string(name.substr(0, 64))));
    (version ? route.version : route.model) = std::move(name);
  }
  return true;
}

}  // namespace

std::optional<Api> api_of(Call call) {
  switch (call) {
    case Call::kLive:
    case Call::kReady:
    case Call::kModelReady:
    case Call::kModelStatus: return Api::kHealth;
    case Call::kServerMetadata:
    case Call::kModelMetadata: return Api::kMetadata;
    case Call::kModelConfig: return Api::kModelConfig;
    case Call::kStatistics: return Api::kStatistics;
    case Call::kInfer:
    case Call::kGenerate:
    case Call::kGenerateStream:
    case Call::kPredict: return Api::kInference;
    case Call::kIndex:
    case Call::kLoad:
    case Call::kUnload: return Api::kModelRepository;
    case Call::kTraceSettings: return Api::kTrace;
    case Call::kLogSettings: return Api::kLogging;
    case Call::kSharedMemoryStatus:
    case Call::kSharedMemoryRegister:
    case Call::kSharedMemoryUnregister:
    case Call::kCudaSharedMemory: return Api::kSharedMemory;
    case Call::kMetrics: break;
  }
  return std::nullopt;
}

std::string_view path_of(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (target.size() < scheme.size() || !std::equal(scheme.begin(), scheme.end(), target.begin(), [](char a, char b) {
          return a == std::tolower(static_cast<unsigned char>(b));
        }))
      continue;
    target.remove_prefix(std::min(target.find_first_of("/?", scheme.size()), target.size()));
    if (target.empty() || target.front() == '?') return "/";
    break;
  }
  return target.substr(0, target.find('?'));
}

Route route_of(std::string_view method, std::string_view path, bool metrics_only) {
  if (!path.starts_with('/')) throw HttpError(400, "request: its target must begin with '/'");
  const std::vector<std::string_view> segments = segments_of(path.substr(1));
  const auto search = [&](auto& patterns) -> std::optional<Route> {
    for (const Pattern& pattern : patterns) {
      Route route;
      if (!matches(pattern, segments, route)) continue;
      if ((method == "HEAD" ? "GET" : method) == pattern.gets) return route;
      route.changes = method == pattern.posts;
      if (!route.changes) throw HttpError(405, "Method Not Allowed");
      return route;
    }
    return std::nullopt;
  };
  const std::optional<Route> route = metrics_only ? search(kMetricsPatterns) : search(kPatterns);
  if (!route) throw HttpError(404, "Not Found");
  return *route;
}

Code code_of(int status) {
  return status == 429 ? Code::kOverloaded : status == 500 ? Code::kInternal : Code::kInvalidArgument;
}

HttpReply error_reply(int status, const std::string& message) {
  return {status, "{\"error\":" + json_string(message) + "}"};
}

HttpReply reply_of(const Error& error) {
  const auto status = [&] {
    switch (error.code()) {
      case Code::kInvalidArgument:
      case Code::kAlreadyExists:
      case Code::kCancelled: return 400;
      case Code::kNotFound: return 404;
      case Code::kTooLarge: return 413;
      case Code::kUnsupported: return 501;
      case Code::kForbidden: return 403;
      case Code::kOverloaded: return 429;
      case Code::kUnavailable: return 503;
      case Code::kTimeout: return 504;
      case Code::kInternal: return 500;
    }
    return 500;
  }();
  HttpReply reply = error_reply(status, error.what());
  if (status == 429 || status == 503) {
    const auto wait = error.retry_after().value_or(std::chrono::seconds(1));
    reply.headers.emplace_back("Retry-After", std::to_string(std::max<int64_t>(1, (wait.count() + 999) / 1000)));
  }
  return reply;
}

HttpReply reply_of_current() {
  try {
    throw;
  } catch (const HttpError& error) {
    return error_reply(error.status(), error.what());
  } catch (const Error& error) {
    return reply_of(error);
  } catch (const std::bad_alloc&) {
    return error_reply(503, "server: out of memory");
  } catch (...) {
    return error_reply(500, "server: an unexpected error; its log says more");
  }
}

}  // namespace sluice::serving
