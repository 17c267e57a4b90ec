// The server of include/sluice/serving.hpp: a Server of the repository's, and front ends where it shall listen.
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "serving/core/loaded.h"
#include "serving/core/log.h"
#include "serving/grpc/grpc_server.h"
#include "serving/http/http_server.h"
#include "serving/http/routes.h"
#include "serving/library/convert.h"

namespace sluice::api::serving {

namespace core = sluice::serving;
using std::chrono::milliseconds;

namespace {

constexpr size_t kKeptBuffers = size_t{64} << 20u;
constexpr milliseconds kLook{10};

// The server whose answer this thread is giving to the program, innermost first.
thread_local const void* responding = nullptr;

class Responding {
 public:
  explicit Responding(const void* server) : before_(std::exchange(responding, server)) {}
  ~Responding() { responding = before_; }
  Responding(const Responding&) = delete;
  Responding& operator=(const Responding&) = delete;

 private:
  const void* const before_;
};

milliseconds left(core::Clock::time_point until) {
  return std::max(milliseconds(0), std::chrono::duration_cast<milliseconds>(until - core::Clock::now()));
}
core::TlsOptions tls_of(const Tls& tls) { return {tls.on, tls.certificate, tls.key, tls.root, tls.mutual}; }

core::Clock::time_point after(milliseconds timeout) {
  return core::Clock::now() + std::min<milliseconds>(timeout, std::chrono::hours(24 * 365));
}

// `respond` is the program's; what it throws would end a thread of the engine, and with it the process.
void give(const void* server, const std::function<void(Response, bool)>& respond, Response response, bool last) {
  const Responding here(server);
  try {
    respond(std::move(response), last);
  } catch (const std::exception& error) {
    core::log_error(std::string("start: respond() of the program threw: ") + error.what());
  } catch (...) {
    core::log_error("start: respond() of the program threw something that is no std::exception");
  }
}

}  // namespace

struct Server::Impl {
  explicit Impl(const Options& options) : server(core::make_server(core::server_options(options))) {
    if (options.http.on) http = listen(options, options.http, false);
    if (options.metrics.on) metrics = listen(options, options.metrics, true);
    if (!options.grpc.on) return;
    core::GrpcOptions given;
    given.address = options.grpc.address;
    given.port = options.grpc.port;
    given.memory = memory;
    given.max_message = options.max_input_bytes;
    given.tls = tls_of(options.grpc.tls);
    given.management_token = options.management_token;
    grpc = std::make_unique<core::GrpcServer>(*server, given);
  }
  ~Impl() { stop(milliseconds(0)); }

  std::unique_ptr<core::HttpServer> listen(const Options& options, const Listen& where, bool metrics_only) {
    core::HttpOptions given;
    given.address = where.address;
    given.port = where.port;
    given.metrics_only = metrics_only;
    given.tls = tls_of(where.tls);
    if (!metrics_only) given.memory = memory;
    given.max_input = options.max_input_bytes;
    if (metrics_only)
      given.threads = 1;
    else
      given.base_path = options.http_base_path;
    given.management_token = options.management_token;
    return std::make_unique<core::HttpServer>(*server, given);
  }

  bool stop(milliseconds timeout) {
    const std::lock_guard lock(stopping);
    const auto until = after(timeout);
    bool all = true;
    if (http) http->stop_accepting();
    if (grpc) all = grpc->drain(left(until)) && all;
    if (http) all = http->drain(left(until)) && all;
    return server->drain(left(until)) && all;
  }

  // The bytes that the requests of both front ends hold.
  const std::shared_ptr<core::MemoryBudget> memory = std::make_shared<core::MemoryBudget>(uint64_t{1} << 30);
  std::mutex stopping;
  core::BufferPool buffers{kKeptBuffers};
  std::unique_ptr<core::Server> server;  // outlives the front ends
  std::unique_ptr<core::HttpServer> http, metrics;
  std::unique_ptr<core::GrpcServer> grpc;
};

Server::Server(const Options& options) : impl_(core::translated([&] { return std::make_shared<Impl>(options); })) {}
Server::~Server() { end(std::move(impl_)); }
Server::Server(Server&&) noexcept = default;
Server& Server::operator=(Server&& other) noexcept {
  end(std::exchange(impl_, std::move(other.impl_)));
  return *this;
}

// It waits for the requests under way, so one whose answer is being given by this thread ends it on another.
void Server::end(std::shared_ptr<Impl> impl) {
  if (impl != nullptr && responding == impl.get()) std::thread([ended = std::move(impl)] {}).detach();
}

Server::Impl& Server::impl() const {
  if (impl_ == nullptr) throw Error(Code::kInvalidArgument, "server: it has been moved from; use the one it went to");
  return *impl_;
}

Server::Impl& Server::waiting(const char* what) const {
  if (responding != nullptr && responding == impl_.get())
    throw Error(Code::kInvalidArgument, std::string(what) +
                                            ": it is called by respond(), whose request it may wait "
                                            "for; call it on another thread");
  return impl();
}

uint16_t Server::http_port() const { return impl().http ? impl().http->port() : 0; }
uint16_t Server::grpc_port() const { return impl().grpc ? impl().grpc->port() : 0; }
uint16_t Server::metrics_port() const { return impl().metrics ? impl().metrics->port() : 0; }

bool Server::ready() const { return impl().server->ready(); }

bool Server::model_ready(const std::string& name, const std::string& version) const {
  return core::translated([&] { return impl().server->model_ready(name, version); });
}

void Server::wait_ready(milliseconds timeout) const {
  const auto until = after(timeout);
  for (;;) {
    const core::Loaded loaded = core::look(*impl().server);
    if (loaded.done && !loaded.failures.empty()) {
      std::string text;
      for (const std::string& failure : loaded.failures) text += (text.empty() ? "" : "; ") + failure;
      throw Error(Code::kUnavailable, text);
    }
    if (loaded.done) return;
    if (core::Clock::now() >= until)
      throw Error(Code::kTimeout, "server: not ready within " + std::to_string(timeout.count()) +
                                      " ms; its models are still being loaded");
    std::this_thread::sleep_for(std::min(kLook, left(until)));
  }
}

void Server::load(const std::string& name, const std::string& config, const std::map<std::string, std::string>& files) {
  core::translated([&] { waiting("load").server->load(name, {config, files}); });
}

void Server::unload(const std::string& name, bool dependents) {
  core::translated([&] { waiting("unload").server->unload(name, dependents); });
}

Response Server::infer(Request request) {
  struct State {
    std::promise<Response> answer;
    std::atomic<bool> several{false};
  };
  static_cast<void>(waiting("infer"));
  const auto state = std::make_shared<State>();
  start(std::move(request), [state](Response response, bool last) {
    if (last)
      state->answer.set_value(std::move(response));
    else
      state->several = true;
  });
  Response response = state->answer.get_future().get();
  if (response.error) throw Error(*response.error);
  if (state->several)
    throw Error(Code::kUnsupported, "infer: model '" + response.model + "' gives several responses; use start()");
  return response;
}

Call Server::start(Request request, std::function<void(Response response, bool last)> respond) {
  if (!respond) throw Error(Code::kInvalidArgument, "start: respond: no function; there must be one to answer by");
  const Impl& mine = impl();
  // `respond` may end the server, which has to be there until infer() returns.
  struct Held {
    ~Held() { end(std::move(server)); }
    std::shared_ptr<Impl> server;
  } held{impl_};
  core::InferRequest made;
  Response wrong;
  wrong.model = request.model;
  wrong.version = request.version;
  wrong.id = request.id;
  try {
    made = core::core_request(std::move(request), impl().buffers);
  } catch (const core::Error& error) {
    wrong.error = core::public_error(error);
  }
  Call call;
  if (wrong.error) {
    give(&mine, respond, std::move(wrong), true);
    return call;
  }
  call.handle_ = mine.server->infer(
      std::move(made), [server = &mine, respond = std::move(respond)](core::InferResponse response, bool last) {
        give(server, respond, core::public_response(std::move(response)), last);
      });
  return call;
}

void Call::cancel() {
  if (handle_ != nullptr) std::static_pointer_cast<core::RequestHandle>(handle_)->cancel();
}

Server::Reply Server::call(const std::string& method, const std::string& path, const std::string& body) {
  const auto of = [](core::HttpReply reply) { return Reply{reply.status, std::move(reply.body)}; };
  if (path == "/metrics" && method == "GET") return {200, impl().server->metrics()};
  const Impl& mine = impl();
  try {
    const core::Route route = core::route_of(method, path, false);
    if (route.call == core::Call::kInfer)
      return of(core::error_reply(501, "call: inference has tensors; use infer() or start()"));
    if (route.slow) static_cast<void>(waiting("call"));
    return of(core::answer(*mine.server, route, body, nullptr));
  } catch (const Error& error) {
    return of(core::error_reply(400, error.what()));
  } catch (...) {
    return of(core::reply_of_current());
  }
}

bool Server::stop(milliseconds timeout) { return waiting("stop").stop(timeout); }

}  // namespace sluice::api::serving
