#pragma once
// Finds what is asked for by a method and a path, and answers all that is no inference. No network here.
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serving/core/restrictions.h"
#include "serving/core/server.h"

namespace sluice::serving {

enum class Call : uint8_t {
  kLive,
  kReady,
  kServerMetadata,
  kModelReady,
  kModelMetadata,
  kModelConfig,
  kStatistics,
  kInfer,
  kGenerate,        // with names and values alone, one response
  kGenerateStream,  // and every response, as an event
  kPredict,         // as TensorFlow Serving's clients ask
  kModelStatus,
  kIndex,
  kLoad,
  kUnload,
  kTraceSettings,
  kLogSettings,
  kSharedMemoryStatus,
  kSharedMemoryRegister,
  kSharedMemoryUnregister,
  kCudaSharedMemory,
  kMetrics,
};

struct Route {
  Call call = Call::kLive;
  bool changes = false;  // the server: only who manages it may
  bool slow = false;     // it may take seconds
  std::string model, version, region;
};

struct HttpReply {
  int status = 200;
  std::string body;
  std::string type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// The group of calls that it belongs to; nothing of the page of metrics.
std::optional<Api> api_of(Call call);

// The path of a request's target, which may name the server, too ("http://host/v2"). Without a query.
std::string_view path_of(std::string_view target);
// `path`: behind the server's base path. HEAD is as GET: what is sent of the answer is the caller's affair. Throws
// HttpError.
Route route_of(std::string_view method, std::string_view path, bool metrics_only);

// A refusal of HTTP's own.
class HttpError : public std::runtime_error {
 public:
  HttpError(int status, const std::string& message) : std::runtime_error(message), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

// The code as which a request counts that was refused with `status`.
Code code_of(int status);
HttpReply error_reply(int status, const std::string& message);
HttpReply reply_of(const Error& error);
// The reply for the exception in flight.
HttpReply reply_of_current();

// The answer to every call but kInfer. `body`: unpacked. The memory of the answer counts in `memory`. Throws nothing.
HttpReply answer(Server& server, const Route& route, std::string_view body, const MemoryPtr& memory);

}  // namespace sluice::serving
