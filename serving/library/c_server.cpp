// include/sluice/sluice_server.h: errors, servers, inference.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <limits>

#include "serving/library/c_support.h"

using namespace sluice::serving::c;
using std::chrono::milliseconds;

namespace {

struct CallObject {
  facade::Call call;
};

milliseconds timeout_of(int64_t ms, const char* where) {
  if (ms < 0) fail(std::string(where) + ": timeout_ms: " + std::to_string(ms) + "; it must not be negative");
  return milliseconds(ms);
}

std::vector<std::string> texts_of(const char* const* texts, size_t count, const char* where, const char* what) {
  std::vector<std::string> all;
  if (count > 0) given(texts, where, what);
  for (size_t i = 0; i < count; ++i) all.emplace_back(given(texts[i], where, what));
  return all;
}

facade::Listen listen_of(int32_t port, const char* address, const char* where, const char* what) {
  if (port < -1 || port > 65535)
    fail(std::string(where) + ": " + what + ": " + std::to_string(port) + "; it must be -1 to 65535");
  facade::Listen listen;
  listen.on = port >= 0;
  listen.port = static_cast<uint16_t>(std::max(port, 0));
  if (address != nullptr) listen.address = address;
  return listen;
}

int positive(int32_t value, const char* where, const char* what) {
  if (value < 0) fail(std::string(where) + ": " + what + ": " + std::to_string(value) + "; it must not be negative");
  return value;
}

// Fields that a caller who knows fewer left out are as the _INIT macro has them.
sluice_server_options read_options(const sluice_server_options* options, const char* where) {
  sluice_server_options all = SLUICE_SERVER_OPTIONS_INIT;
  const size_t size = given(options, where, "options")->size;
  if (size < offsetof(sluice_server_options, startup_models) || size > sizeof all)
    fail(std::string(where) + ": options: a size of " + std::to_string(size) +
         "; begin with SLUICE_SERVER_OPTIONS_INIT");
  std::memcpy(&all, options, size);
  return all;
}

facade::Options options_of(const sluice_server_options* given_options, const char* where) {
  const sluice_server_options o = read_options(given_options, where);
  facade::Options options;
  options.repositories = texts_of(o.repositories, o.num_repositories, where, "repositories");
  options.startup_models = texts_of(o.startup_models, o.num_startup_models, where, "startup_models");
  if (o.model_control < 0 || o.model_control > 2)
    fail(std::string(where) + ": model_control: " + std::to_string(o.model_control) + "; it must be 0, 1 or 2");
  options.control = static_cast<facade::Control>(o.model_control);
  if (positive(o.poll_ms, where, "poll_ms") > 0) options.poll = milliseconds(o.poll_ms);
  options.cores = positive(o.cores, where, "cores");
  if (positive(o.max_queue_size, where, "max_queue_size") > 0)
    options.max_queue_size = static_cast<uint32_t>(o.max_queue_size);
  options.memory_limit = o.memory_limit;
  options.response_cache_bytes = o.response_cache_bytes;
  options.http = listen_of(o.http_port, o.address, where, "http_port");
  options.grpc = listen_of(o.grpc_port, o.address, where, "grpc_port");
  options.metrics = listen_of(o.metrics_port, o.address, where, "metrics_port");
  options.shared_memory = o.shared_memory != 0;
  if (o.shared_memory_prefix != nullptr) options.shared_memory_prefix = o.shared_memory_prefix;
  if (o.max_input_bytes > 0) options.max_input_bytes = o.max_input_bytes;
  options.management_token = text_of(o.management_token);
  return options;
}

std::shared_ptr<facade::Server> server_of(const sluice_server* server, const char* where) {
  return get<facade::Server>(server, where, "server");
}

template <class Function>
int number_of(const sluice_server* server, const Function& function) {
  return answered(0, [&] { return static_cast<int>(function(*server_of(server, ""))); });
}

// The request, whose handle is gone from here on.
facade::Request taken(sluice_server_request* request, const char* where) {
  const auto object = handles().remove<RequestObject>(request);
  if (object == nullptr)
    fail(std::string(where) + ": not a live handle of a request; it must have been created, and not been used");
  const std::lock_guard lock(object->mutex);
  return std::move(object->request);
}

sluice_server_response* add_response(facade::Response response) {
  return handles().add<sluice_server_response>(std::make_shared<facade::Response>(std::move(response)));
}

}  // namespace

sluice_server_code sluice_server_error_code(const sluice_server_error* error) {
  if (error == nullptr) return SLUICE_SERVER_OK;
  return answered(SLUICE_SERVER_INTERNAL, [&] { return get<ErrorObject>(error, "", "")->code; });
}
const char* sluice_server_error_message(const sluice_server_error* error) {
  if (error == nullptr) return "";
  if (error == out_of_memory()) return "server: out of memory";
  return answered("server: not a live error", [&] { return get<ErrorObject>(error, "", "")->message.c_str(); });
}
int64_t sluice_server_error_retry_after_ms(const sluice_server_error* error) {
  return answered(int64_t{-1}, [&] { return get<ErrorObject>(error, "", "")->retry_after_ms; });
}
void sluice_server_error_destroy(sluice_server_error* error) { handles().remove<ErrorObject>(error); }

sluice_server_error* sluice_server_create(const sluice_server_options* options, sluice_server** server) {
  return guarded([&] {
    const char* where = "sluice_server_create";
    given(server, where, "server");
    *server = handles().add<sluice_server>(std::make_shared<facade::Server>(options_of(options, where)));
  });
}
void sluice_server_destroy(sluice_server* server) { handles().remove<facade::Server>(server); }

sluice_server_error* sluice_server_stop(sluice_server* server, int64_t timeout_ms, int* all_answered) {
  return guarded([&] {
    const char* where = "sluice_server_stop";
    const bool all = server_of(server, where)->stop(timeout_of(timeout_ms, where));
    if (all_answered != nullptr) *all_answered = all ? 1 : 0;
  });
}

int sluice_server_http_port(const sluice_server* server) {
  return number_of(server, [](const facade::Server& s) { return s.http_port(); });
}
int sluice_server_grpc_port(const sluice_server* server) {
  return number_of(server, [](const facade::Server& s) { return s.grpc_port(); });
}
int sluice_server_metrics_port(const sluice_server* server) {
  return number_of(server, [](const facade::Server& s) { return s.metrics_port(); });
}
int sluice_server_ready(const sluice_server* server) {
  return number_of(server, [](const facade::Server& s) { return s.ready(); });
}
int sluice_server_model_ready(const sluice_server* server, const char* model, const char* version) {
  return number_of(server, [&](const facade::Server& s) { return s.model_ready(text_of(model), text_of(version)); });
}

sluice_server_error* sluice_server_wait_ready(const sluice_server* server, int64_t timeout_ms) {
  return guarded([&] {
    const char* where = "sluice_server_wait_ready";
    server_of(server, where)->wait_ready(timeout_of(timeout_ms, where));
  });
}

sluice_server_error* sluice_server_load(sluice_server* server, const char* model, const char* config) {
  return guarded([&] {
    const char* where = "sluice_server_load";
    server_of(server, where)->load(given(model, where, "model"), text_of(config));
  });
}

sluice_server_error* sluice_server_unload(sluice_server* server, const char* model, int dependents) {
  return guarded([&] {
    const char* where = "sluice_server_unload";
    server_of(server, where)->unload(given(model, where, "model"), dependents != 0);
  });
}

sluice_server_error* sluice_server_ask(sluice_server* server, const char* method, const char* path, const char* body,
                                       int* status, char** reply) {
  return guarded([&] {
    const char* where = "sluice_server_ask";
    given(reply, where, "reply");
    const facade::Server::Reply answer =
        server_of(server, where)->call(given(method, where, "method"), given(path, where, "path"), text_of(body));
    char* const text = static_cast<char*>(std::malloc(answer.body.size() + 1));
    if (text == nullptr) throw std::bad_alloc();
    std::memcpy(text, answer.body.c_str(), answer.body.size() + 1);
    *reply = text;
    if (status != nullptr) *status = answer.status;
  });
}
void sluice_server_free(char* text) { std::free(text); }

sluice_server_error* sluice_server_infer(sluice_server* server, sluice_server_request* request,
                                         sluice_server_response** response) {
  return guarded([&] {
    const char* where = "sluice_server_infer";
    facade::Request mine = taken(request, where);
    given(response, where, "response");
    *response = add_response(server_of(server, where)->infer(std::move(mine)));
  });
}

sluice_server_error* sluice_server_start(sluice_server* server, sluice_server_request* request,
                                         sluice_server_respond respond, void* context, sluice_server_call** call) {
  return guarded([&] {
    const char* where = "sluice_server_start";
    facade::Request mine = taken(request, where);
    given(respond, where, "respond");
    const auto owner = server_of(server, where);
    // It must be told, so there is memory for its handle before anything starts.
    const auto made = std::make_shared<CallObject>();
    sluice_server_call* const handle = call == nullptr ? nullptr : handles().add<sluice_server_call>(made);
    made->call = owner->start(std::move(mine), [respond, context](facade::Response response, bool last) {
      respond(context, add_response(std::move(response)), last ? 1 : 0);
    });
    if (call != nullptr) *call = handle;
  });
}

void sluice_server_call_cancel(sluice_server_call* call) {
  if (const auto object = handles().find<CallObject>(call)) object->call.cancel();
}
void sluice_server_call_destroy(sluice_server_call* call) { handles().remove<CallObject>(call); }
