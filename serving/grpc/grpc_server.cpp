#include "serving/grpc/grpc_server.h"

#include <fmt/format.h>
#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <future>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>

#include "health.grpc.pb.h"
#include "serving/core/secret.h"
#include "serving/core/shared_memory.h"
#include "serving/grpc/calls.h"
#include "serving/grpc/messages.h"

namespace sluice::serving {

namespace {

constexpr size_t kPooledBytes = size_t{256} << 20;
constexpr size_t kMostOfAStream = 64;
constexpr int kMostStreams = 1024;                     // of a connection, calls among them
constexpr uint64_t kLeastQuota = uint64_t{256} << 20;  // of gRPC's own buffers
constexpr uint64_t kMessagesUnread = 8;                // of the largest size, of a stream
constexpr uint64_t kMemoryOfMessage = 16;              // a request may hold so many times what a message may have

// A service whose methods take and give bytes, so that they count before they become messages.
template <class Base, template <class> class... Methods>
struct RawMethods {
  using Type = Base;
};
template <class Base, template <class> class First, template <class> class... Others>
struct RawMethods<Base, First, Others...> {
  using Type = First<typename RawMethods<Base, Others...>::Type>;
};
using Inference = inference::GRPCInferenceService;
using RawInference = RawMethods<
    Inference::Service, Inference::WithRawCallbackMethod_ServerLive, Inference::WithRawCallbackMethod_ServerReady,
    Inference::WithRawCallbackMethod_ModelReady, Inference::WithRawCallbackMethod_ServerMetadata,
    Inference::WithRawCallbackMethod_ModelMetadata, Inference::WithRawCallbackMethod_ModelConfig,
    Inference::WithRawCallbackMethod_ModelStatistics, Inference::WithRawCallbackMethod_RepositoryIndex,
    Inference::WithRawCallbackMethod_RepositoryModelLoad, Inference::WithRawCallbackMethod_RepositoryModelUnload,
    Inference::WithRawCallbackMethod_SystemSharedMemoryStatus,
    Inference::WithRawCallbackMethod_SystemSharedMemoryRegister,
    Inference::WithRawCallbackMethod_SystemSharedMemoryUnregister,
    Inference::WithRawCallbackMethod_CudaSharedMemoryStatus, Inference::WithRawCallbackMethod_CudaSharedMemoryRegister,
    Inference::WithRawCallbackMethod_CudaSharedMemoryUnregister, Inference::WithRawCallbackMethod_TraceSetting,
    Inference::WithRawCallbackMethod_LogSettings, Inference::WithRawCallbackMethod_ModelInfer,
    Inference::WithRawCallbackMethod_ModelStreamInfer>::Type;

using Context = grpc::CallbackServerContext;
using Unary = grpc::ServerUnaryReactor;
using Bytes = grpc::ByteBuffer;

void check_call(const grpc::CallbackServerContext& context, const Restrictions& restrictions, Api api) {
  check_restriction(restrictions, api, "triton-grpc-protocol-", [&](const std::string& header) -> std::string {
    const auto found = context.client_metadata().find(header);
    return found == context.client_metadata().end() ? "" : std::string(found->second.data(), found->second.size());
  });
}

// The group of calls that a request belongs to.
template <class Request>
constexpr Api api_of() {
  if constexpr (std::is_same_v<Request, inference::ServerLiveRequest> ||
                std::is_same_v<Request, inference::ServerReadyRequest> ||
                std::is_same_v<Request, inference::ModelReadyRequest> ||
                std::is_same_v<Request, grpc::health::v1::HealthCheckRequest>)
    return Api::kHealth;
  else if constexpr (std::is_same_v<Request, inference::ServerMetadataRequest> ||
                     std::is_same_v<Request, inference::ModelMetadataRequest>)
    return Api::kMetadata;
  else if constexpr (std::is_same_v<Request, inference::ModelConfigRequest>)
    return Api::kModelConfig;
  else if constexpr (std::is_same_v<Request, inference::ModelStatisticsRequest>)
    return Api::kStatistics;
  else if constexpr (std::is_same_v<Request, inference::RepositoryIndexRequest> ||
                     std::is_same_v<Request, inference::RepositoryModelLoadRequest> ||
                     std::is_same_v<Request, inference::RepositoryModelUnloadRequest>)
    return Api::kModelRepository;
  else if constexpr (std::is_same_v<Request, inference::TraceSettingRequest>)
    return Api::kTrace;
  else if constexpr (std::is_same_v<Request, inference::LogSettingsRequest>)
    return Api::kLogging;
  else
    return Api::kSharedMemory;
}

// A call that is answered by one function.
class Answer final : public Unary {
 public:
  explicit Answer(const CallContext& with) : here_(with.open), share_(with.share()) {}
  void OnDone() override { delete this; }

  template <class Request, class Response, class Function>
  void give(const Bytes& asked, Bytes& answered, const Function& function) {
    try {
      Held counted;
      Request request;
      read_message(asked, request, share_, counted, kSmallMessage);
      Response response;
      function(request, response, share_);
      write_message(response, answered, share_, held_, kSmallMessage);
    } catch (...) {
      return Finish(status_of_current());
    }
    Finish(grpc::Status::OK);
  }

 private:
  const OpenCalls::Here here_;
  const MemoryPtr share_;
  Held held_;
};

class Service final : public RawInference {
 public:
  Service(Server& server, const GrpcOptions& options)
      : server_(server),
        management_(options.management),
        token_(options.management_token),
        restrictions_(options.restrictions),
        memory_(options.memory != nullptr ? options.memory : std::make_shared<MemoryBudget>(uint64_t{1} << 30)),
        buffers_(kPooledBytes, memory_),
        calls_{server,
               buffers_,
               open_,
               memory_,
               kMemoryOfMessage * options.max_message,
               kMessagesUnread * options.max_message} {}
  ~Service() override { wait(); }
  void wait() { workers_.join(); }
  uint64_t memory_limit() const { return memory_->limit(); }
  OpenCalls& open() { return open_; }
  const CallContext& calls() const { return calls_; }

  Unary* ServerLive(Context* context, const Bytes* q, Bytes* r) override {
    return now<inference::ServerLiveRequest, inference::ServerLiveResponse>(
        context, q, r, [this](const auto&, auto& answer) { answer.set_live(server_.live()); });
  }
  Unary* ServerReady(Context* context, const Bytes* q, Bytes* r) override {
    return now<inference::ServerReadyRequest, inference::ServerReadyResponse>(
        context, q, r, [this](const auto&, auto& answer) { answer.set_ready(server_.ready()); });
  }
  Unary* ModelReady(Context* context, const Bytes* q, Bytes* r) override {
    return now<inference::ModelReadyRequest, inference::ModelReadyResponse>(
        context, q, r, [this](const auto& asked, auto& answer) {
          try {
            answer.set_ready(server_.model_ready(asked.name(), asked.version()));
          } catch (const Error& error) {
            if (error.code() != Code::kNotFound) throw;
            answer.set_ready(false);  // what there is not is not ready
          }
        });
  }
  Unary* ServerMetadata(Context* context, const Bytes* q, Bytes* r) override {
    return now<inference::ServerMetadataRequest, inference::ServerMetadataResponse>(
        context, q, r, [this](const auto&, auto& answer) { answer = server_.metadata(); });
  }
  Unary* ModelMetadata(Context* context, const Bytes* q, Bytes* r) override {
    return now<inference::ModelMetadataRequest, inference::ModelMetadataResponse>(
        context, q, r,
        [this](const auto& asked, auto& answer) { answer = server_.model_metadata(asked.name(), asked.version()); });
  }
  Unary* ModelConfig(Context* context, const Bytes* q, Bytes* r) override {
    return now<inference::ModelConfigRequest, inference::ModelConfigResponse>(
        context, q, r, [this](const auto& asked, auto& answer) {
          *answer.mutable_config() = server_.model_config(asked.name(), asked.version());
        });
  }
  Unary* ModelStatistics(Context* context, const Bytes* q, Bytes* r) override {
    return now<inference::ModelStatisticsRequest, inference::ModelStatisticsResponse>(
        context, q, r,
        [this](const auto& asked, auto& answer) { answer = server_.statistics(asked.name(), asked.version()); });
  }
  Unary* RepositoryIndex(Context* context, const Bytes* q, Bytes* r) override {
    return now<inference::RepositoryIndexRequest, inference::RepositoryIndexResponse>(
        context, q, r, [this](const auto& asked, auto& answer) { answer = server_.index(asked.ready()); });
  }
  Unary* RepositoryModelLoad(Context* context, const Bytes* q, Bytes* r) override {
    return later<inference::RepositoryModelLoadRequest, inference::RepositoryModelLoadResponse>(
        context, q, r, [this](const auto& asked, const MemoryPtr& share) {
          const Held files(share, 2 * asked.ByteSizeLong());  // here, and as the repository reads them
          server_.load(asked.model_name(), overrides_of(asked));
        });
  }
  Unary* RepositoryModelUnload(Context* context, const Bytes* q, Bytes* r) override {
    return later<inference::RepositoryModelUnloadRequest, inference::RepositoryModelUnloadResponse>(
        context, q, r, [this](const auto& asked, const MemoryPtr&) {
          const auto found = asked.parameters().find("unload_dependents");
          server_.unload(asked.model_name(), found != asked.parameters().end() && found->second.bool_param());
        });
  }
  Unary* SystemSharedMemoryStatus(Context* context, const Bytes* q, Bytes* r) override {
    return now<inference::SystemSharedMemoryStatusRequest, inference::SystemSharedMemoryStatusResponse>(
        context, q, r, [this](const auto& asked, auto& answer) { answer = server_.shared_memory(asked.name()); });
  }
  Unary* SystemSharedMemoryRegister(Context* context, const Bytes* q, Bytes* r) override {
    return now<inference::SystemSharedMemoryRegisterRequest, inference::SystemSharedMemoryRegisterResponse>(
        context, q, r, [this, context](const auto& asked, auto&) {
          check_management(*context);
          server_.register_shared_memory(asked);
        });
  }
  Unary* SystemSharedMemoryUnregister(Context* context, const Bytes* q, Bytes* r) override {
    return now<inference::SystemSharedMemoryUnregisterRequest, inference::SystemSharedMemoryUnregisterResponse>(
        context, q, r, [this, context](const auto& asked, auto&) {
          check_management(*context);
          server_.unregister_shared_memory(asked.name());
        });
  }
  Unary* CudaSharedMemoryStatus(Context* context, const Bytes* q, Bytes* r) override { return no_cuda(context, q, r); }
  Unary* CudaSharedMemoryRegister(Context* context, const Bytes* q, Bytes* r) override {
    return no_cuda(context, q, r);
  }
  Unary* CudaSharedMemoryUnregister(Context* context, const Bytes* q, Bytes* r) override {
    return no_cuda(context, q, r);
  }
  Unary* TraceSetting(Context* context, const Bytes* q, Bytes* r) override {
    return now<inference::TraceSettingRequest, inference::TraceSettingResponse>(
        context, q, r, [this, context](const auto& asked, auto& answer) {
          if (asked.settings_size() > 0) check_management(*context);
          answer = server_.trace_settings(asked);
        });
  }
  Unary* LogSettings(Context* context, const Bytes* q, Bytes* r) override {
    return now<inference::LogSettingsRequest, inference::LogSettingsResponse>(
        context, q, r, [this, context](const auto& asked, auto& answer) {
          if (asked.settings_size() > 0) check_management(*context);
          answer = server_.log_settings(asked);
        });
  }

  Unary* ModelInfer(Context* context, const Bytes* q, Bytes* r) override {
    if (const grpc::Status status = allowed(*context); !status.ok()) {
      auto* const answer = new Answer(calls_);
      answer->Finish(status);
      return answer;
    }
    return infer_call(*context, calls_, *q, r);
  }
  grpc::ServerBidiReactor<Bytes, Bytes>* ModelStreamInfer(Context* context) override {
    if (const grpc::Status status = allowed(*context); !status.ok()) return refuse_stream(status);
    return stream_call(*context, calls_, kMostOfAStream);
  }

 private:
  Unary* no_cuda(Context* context, const Bytes* q, Bytes* r) {
    return now<inference::CudaSharedMemoryRequest, inference::CudaSharedMemoryResponse>(
        context, q, r, [](const auto&, auto&) { throw no_cuda_memory(); });
  }
  void check_management(const Context& context) const {
    if (!management_) throw Error(Code::kForbidden, "management: this server does not take such calls");
    if (token_.empty()) return;
    const auto [begin, end] = context.client_metadata().equal_range("authorization");
    const bool known = std::any_of(begin, end, [this](const auto& entry) {
      return is_bearer({entry.second.data(), entry.second.size()}, token_);
    });
    if (!known)
      throw Error(Code::kForbidden, "management: the call needs the token, as metadata 'authorization: Bearer TOKEN'");
  }

  static LoadOverrides overrides_of(const inference::RepositoryModelLoadRequest& request) {
    LoadOverrides overrides;
    for (const auto& [name, value] : request.parameters()) {
      const bool text = value.parameter_choice_case() == inference::ModelRepositoryParameter::kStringParam;
      const bool bytes = value.parameter_choice_case() == inference::ModelRepositoryParameter::kBytesParam;
      if (name == "config" && text)
        overrides.config = value.string_param();
      else if (name.starts_with("file:") && bytes)
        overrides.files[name.substr(5)] = value.bytes_param();
      else
        throw Error(Code::kInvalidArgument,
                    "load: parameter '" + name + "'; known are config (a string) and file:<path> (bytes)");
    }
    return overrides;
  }

  // Inference.
  grpc::Status allowed(const Context& context) const {
    try {
      check_call(context, restrictions_, Api::kInference);
      return grpc::Status::OK;
    } catch (...) {
      return status_of_current();
    }
  }
  template <class Request, class Response, class Function>
  Unary* now(Context* context, const Bytes* asked, Bytes* answered, const Function& function) {
    auto* const answer = new Answer(calls_);
    answer->give<Request, Response>(*asked, *answered,
                                    [&](const Request& request, Response& response, const MemoryPtr&) {
                                      check_call(*context, restrictions_, api_of<Request>());
                                      function(request, response);
                                    });
    return answer;
  }
  // Runs a call that takes long on a thread of ours.
  template <class Request, class Response, class Function>
  Unary* later(Context* context, const Bytes* asked, Bytes* answered, Function function) {
    auto* const answer = new Answer(calls_);
    try {
      check_call(*context, restrictions_, api_of<Request>());
      check_management(*context);
    } catch (const Error& error) {
      answer->Finish(status_of(error));
      return answer;
    }
    boost::asio::post(workers_, [answer, asked, answered, function = std::move(function)] {
      answer->give<Request, Response>(
          *asked, *answered,
          [&](const Request& request, Response&, const MemoryPtr& share) { function(request, share); });
    });
    return answer;
  }

  Server& server_;
  const bool management_;
  const std::string token_;
  const Restrictions restrictions_;
  const std::shared_ptr<MemoryBudget> memory_;
  BufferPool buffers_;
  OpenCalls open_;
  const CallContext calls_;
  boost::asio::thread_pool workers_{2};
};

// Serving while the server is ready.
class Health final : public grpc::health::v1::Health::WithRawCallbackMethod_Check<grpc::health::v1::Health::Service> {
 public:
  Health(const Server& server, const CallContext& calls, Restrictions restrictions)
      : server_(server), calls_(calls), restrictions_(std::move(restrictions)) {}
  void close() { closed_ = true; }

  Unary* Check(Context* context, const Bytes* asked, Bytes* answered) override {
    using Request = grpc::health::v1::HealthCheckRequest;
    using Response = grpc::health::v1::HealthCheckResponse;
    auto* const answer = new Answer(calls_);
    answer->give<Request, Response>(*asked, *answered, [&](const Request& q, Response& r, const MemoryPtr&) {
      check_call(*context, restrictions_, Api::kHealth);
      if (!q.service().empty() && q.service() != inference::GRPCInferenceService::service_full_name())
        throw Error(Code::kNotFound, "health: unknown service");
      r.set_status(!closed_ && server_.ready() ? Response::SERVING : Response::NOT_SERVING);
    });
    return answer;
  }

 private:
  const Server& server_;
  const CallContext& calls_;
  const Restrictions restrictions_;
  std::atomic<bool> closed_{false};
};

std::shared_ptr<grpc::ServerCredentials> credentials_of(const TlsOptions& options) {
  check_tls("grpc", options);
  if (!options.on) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions ssl(options.mutual ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                                       : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  ssl.pem_key_cert_pairs.push_back(
      {read_pem("grpc", "key", options.key), read_pem("grpc", "certificate", options.certificate)});
  if (!options.root.empty()) ssl.pem_root_certs = read_pem("grpc", "root certificate", options.root);
  return grpc::SslServerCredentials(ssl);
}

}  // namespace

struct GrpcServer::Impl {
  Impl(Server& server, const GrpcOptions& options)
      : service(server, options),
        health(server, service.calls(), options.restrictions),
        half_timeout(options.half_timeout) {}
  Service service;
  Health health;
  std::unique_ptr<grpc::Server> server;
  std::mutex draining;
  bool drained = false, all = true;
  const std::chrono::milliseconds half_timeout;
};

GrpcServer::GrpcServer(Server& server, const GrpcOptions& options) : impl_(std::make_unique<Impl>(server, options)) {
  grpc::EnableDefaultHealthCheckService(false);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(fmt::format("{}:{}", options.address, options.port), credentials_of(options.tls), &port);
  const int most = static_cast<int>(std::min<size_t>(options.max_message, INT_MAX));
  builder.SetMaxReceiveMessageSize(most);
  builder.SetMaxSendMessageSize(most);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostStreams);
  // The bytes of messages before they are whole are gRPC's own, and counted by none of ours.
  grpc::ResourceQuota quota("sluice-serve");
  quota.Resize(std::max(impl_->service.memory_limit(), kLeastQuota));
  builder.SetResourceQuota(quota);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, options.reuse_port ? 1 : 0);  // otherwise, in use is an error
  for (const auto& [argument, value] : options.tuning) builder.AddChannelArgument(argument, value);
  builder.RegisterService(&impl_->service);
  builder.RegisterService(&impl_->health);
  impl_->server = builder.BuildAndStart();
  if (impl_->server == nullptr || port == 0)
    throw Error(Code::kUnavailable,
                fmt::format("grpc: cannot listen on {}:{}; the port must be free, the address one of this machine{}",
                            options.address, options.port, options.tls.on ? ", and certificate and key a pair" : ""));
  port_ = static_cast<uint16_t>(port);
}

GrpcServer::~GrpcServer() { drain(std::chrono::milliseconds(0)); }

bool GrpcServer::drain(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(impl_->draining);
  if (std::exchange(impl_->drained, true)) return impl_->all;
  const auto begin = std::chrono::system_clock::now(), deadline = begin + timeout;
  impl_->health.close();
  std::promise<void> down;
  std::thread shutting([&] {
    impl_->server->Shutdown(deadline);
    down.set_value();
  });
  OpenCalls& open = impl_->service.open();
  open.end_streams();
  impl_->all = open.wait_for_none(deadline);
  // The calls that are left have half messages: gRPC's library would wait for them until the deadline.
  const auto patience = std::min(deadline, begin + impl_->half_timeout);
  if (impl_->all && down.get_future().wait_until(patience) != std::future_status::ready)
    grpc_server_cancel_all_calls(impl_->server->c_server());
  shutting.join();
  impl_->server->Wait();
  return impl_->all;
}

}  // namespace sluice::serving
