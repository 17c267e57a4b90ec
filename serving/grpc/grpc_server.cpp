#include "serving/grpc/grpc_server.h"

#include <fmt/format.h>
#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

#include "health.grpc.pb.h"
#include "serving/core/secret.h"
#include "serving/core/shared_memory.h"
#include "serving/grpc/calls.h"

namespace sluice::serving {

namespace {

constexpr size_t kPooledBytes = size_t{256} << 20;
constexpr size_t kMostOfAStream = 64;
constexpr int kMostStreams = 1024;                     // of a connection, calls among them
constexpr uint64_t kLeastQuota = uint64_t{256} << 20;  // of gRPC's own buffers
constexpr uint64_t kMessagesUnread = 8;                // of the largest size, of a stream

void check_call(const grpc::CallbackServerContext& context, const Restrictions& restrictions, Api api) {
  check_restriction(restrictions, api, "triton-grpc-protocol-", [&](const std::string& header) -> std::string {
    const auto found = context.client_metadata().find(header);
    return found == context.client_metadata().end() ? "" : std::string(found->second.data(), found->second.size());
  });
}

class Service final : public inference::GRPCInferenceService::CallbackService {
 public:
  Service(Server& server, const GrpcOptions& options)
      : server_(server),
        management_(options.management),
        token_(options.management_token),
        restrictions_(options.restrictions),
        buffers_(kPooledBytes),
        calls_{server, buffers_,
               options.memory != nullptr ? options.memory : std::make_shared<MemoryBudget>(uint64_t{1} << 30),
               kMessagesUnread * options.max_message} {}
  ~Service() override { wait(); }
  void wait() { workers_.join(); }
  uint64_t memory_limit() const { return calls_.memory->limit(); }

  using Context = grpc::CallbackServerContext;
  using Unary = grpc::ServerUnaryReactor;

  Unary* ServerLive(Context* context, const inference::ServerLiveRequest*, inference::ServerLiveResponse* r) override {
    return now(context, Api::kHealth, [&] { r->set_live(server_.live()); });
  }
  Unary* ServerReady(Context* context, const inference::ServerReadyRequest*,
                     inference::ServerReadyResponse* r) override {
    return now(context, Api::kHealth, [&] { r->set_ready(server_.ready()); });
  }
  Unary* ModelReady(Context* context, const inference::ModelReadyRequest* q,
                    inference::ModelReadyResponse* r) override {
    return now(context, Api::kHealth, [&] {
      try {
        r->set_ready(server_.model_ready(q->name(), q->version()));
      } catch (const Error& error) {
        if (error.code() != Code::kNotFound) throw;
        r->set_ready(false);  // what there is not is not ready
      }
    });
  }
  Unary* ServerMetadata(Context* context, const inference::ServerMetadataRequest*,
                        inference::ServerMetadataResponse* r) override {
    return now(context, Api::kMetadata, [&] { *r = server_.metadata(); });
  }
  Unary* ModelMetadata(Context* context, const inference::ModelMetadataRequest* q,
                       inference::ModelMetadataResponse* r) override {
    return now(context, Api::kMetadata, [&] { *r = server_.model_metadata(q->name(), q->version()); });
  }
  Unary* ModelConfig(Context* context, const inference::ModelConfigRequest* q,
                     inference::ModelConfigResponse* r) override {
    return now(context, Api::kModelConfig,
               [&] { *r->mutable_config() = server_.model_config(q->name(), q->version()); });
  }
  Unary* ModelStatistics(Context* context, const inference::ModelStatisticsRequest* q,
                         inference::ModelStatisticsResponse* r) override {
    return now(context, Api::kStatistics, [&] { *r = server_.statistics(q->name(), q->version()); });
  }
  Unary* RepositoryIndex(Context* context, const inference::RepositoryIndexRequest* q,
                         inference::RepositoryIndexResponse* r) override {
    return now(context, Api::kModelRepository, [&] { *r = server_.index(q->ready()); });
  }
  Unary* RepositoryModelLoad(Context* context, const inference::RepositoryModelLoadRequest* q,
                             inference::RepositoryModelLoadResponse*) override {
    return later(context, Api::kModelRepository, [this, q] { server_.load(q->model_name(), overrides_of(*q)); });
  }
  Unary* RepositoryModelUnload(Context* context, const inference::RepositoryModelUnloadRequest* q,
                               inference::RepositoryModelUnloadResponse*) override {
    return later(context, Api::kModelRepository, [this, q] {
      const auto found = q->parameters().find("unload_dependents");
      server_.unload(q->model_name(), found != q->parameters().end() && found->second.bool_param());
    });
  }
  Unary* SystemSharedMemoryStatus(Context* context, const inference::SystemSharedMemoryStatusRequest* q,
                                  inference::SystemSharedMemoryStatusResponse* r) override {
    return now(context, Api::kSharedMemory, [&] { *r = server_.shared_memory(q->name()); });
  }
  Unary* SystemSharedMemoryRegister(Context* context, const inference::SystemSharedMemoryRegisterRequest* q,
                                    inference::SystemSharedMemoryRegisterResponse*) override {
    return now(context, Api::kSharedMemory, [&] {
      check_management(*context);
      server_.register_shared_memory(*q);
    });
  }
  Unary* SystemSharedMemoryUnregister(Context* context, const inference::SystemSharedMemoryUnregisterRequest* q,
                                      inference::SystemSharedMemoryUnregisterResponse*) override {
    return now(context, Api::kSharedMemory, [&] {
      check_management(*context);
      server_.unregister_shared_memory(q->name());
    });
  }
  using CudaRequest = inference::CudaSharedMemoryRequest;
  using CudaResponse = inference::CudaSharedMemoryResponse;
  Unary* CudaSharedMemoryStatus(Context* context, const CudaRequest*, CudaResponse*) override {
    return no_cuda(context);
  }
  Unary* CudaSharedMemoryRegister(Context* context, const CudaRequest*, CudaResponse*) override {
    return no_cuda(context);
  }
  Unary* CudaSharedMemoryUnregister(Context* context, const CudaRequest*, CudaResponse*) override {
    return no_cuda(context);
  }
  Unary* TraceSetting(Context* context, const inference::TraceSettingRequest* q,
                      inference::TraceSettingResponse* r) override {
    return now(context, Api::kTrace, [&] {
      if (q->settings_size() > 0) check_management(*context);
      *r = server_.trace_settings(*q);
    });
  }
  Unary* LogSettings(Context* context, const inference::LogSettingsRequest* q,
                     inference::LogSettingsResponse* r) override {
    return now(context, Api::kLogging, [&] {
      if (q->settings_size() > 0) check_management(*context);
      *r = server_.log_settings(*q);
    });
  }

  Unary* ModelInfer(Context* context, const inference::ModelInferRequest* q,
                    inference::ModelInferResponse* r) override {
    if (const grpc::Status status = allowed(*context, Api::kInference); !status.ok()) {
      Unary* const reactor = context->DefaultReactor();
      reactor->Finish(status);
      return reactor;
    }
    return infer_call(*context, calls_, *q, r);
  }
  grpc::ServerBidiReactor<inference::ModelInferRequest, inference::ModelStreamInferResponse>* ModelStreamInfer(
      Context* context) override {
    if (const grpc::Status status = allowed(*context, Api::kInference); !status.ok()) return refuse_stream(status);
    return stream_call(*context, calls_, kMostOfAStream);
  }

 private:
  Unary* no_cuda(Context* context) {
    return now(context, Api::kSharedMemory, [] { throw no_cuda_memory(); });
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

  template <class Function>
  static grpc::Status try_to(const Function& function) {
    try {
      function();
      return grpc::Status::OK;
    } catch (...) {
      return status_of_current();
    }
  }
  grpc::Status allowed(const Context& context, Api api) const {
    return try_to([&] { check_call(context, restrictions_, api); });
  }
  template <class Function>
  Unary* now(Context* context, Api api, const Function& function) {
    Unary* const reactor = context->DefaultReactor();
    const grpc::Status status = allowed(*context, api);
    reactor->Finish(status.ok() ? try_to(function) : status);
    return reactor;
  }
  // What takes long, on a thread of ours.
  template <class Function>
  Unary* later(Context* context, Api api, Function function) {
    Unary* const reactor = context->DefaultReactor();
    const auto check = [&] {
      check_call(*context, restrictions_, api);
      check_management(*context);
    };
    if (const grpc::Status status = try_to(check); !status.ok())
      reactor->Finish(status);
    else
      boost::asio::post(workers_, [reactor, function = std::move(function)] { reactor->Finish(try_to(function)); });
    return reactor;
  }

  Server& server_;
  const bool management_;
  const std::string token_;
  const Restrictions restrictions_;
  BufferPool buffers_;
  const CallContext calls_;
  boost::asio::thread_pool workers_{2};
};

// Serving while the server is ready.
class Health final : public grpc::health::v1::Health::CallbackService {
 public:
  Health(const Server& server, Restrictions restrictions) : server_(server), restrictions_(std::move(restrictions)) {}
  void close() { closed_ = true; }

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context, const grpc::health::v1::HealthCheckRequest* q,
                                  grpc::health::v1::HealthCheckResponse* r) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    try {
      check_call(*context, restrictions_, Api::kHealth);
    } catch (...) {
      reactor->Finish(status_of_current());
      return reactor;
    }
    const bool known = q->service().empty() || q->service() == inference::GRPCInferenceService::service_full_name();
    using Response = grpc::health::v1::HealthCheckResponse;
    r->set_status(!closed_ && server_.ready() ? Response::SERVING : Response::NOT_SERVING);
    reactor->Finish(known ? grpc::Status::OK : grpc::Status(grpc::StatusCode::NOT_FOUND, "health: unknown service"));
    return reactor;
  }

 private:
  const Server& server_;
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
  Impl(Server& server, const GrpcOptions& options) : service(server, options), health(server, options.restrictions) {}
  Service service;
  Health health;
  std::unique_ptr<grpc::Server> server;
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
  // What comes of messages before they are whole is gRPC's own, and counted by none of ours.
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
  const auto deadline = std::chrono::system_clock::now() + timeout;
  impl_->health.close();
  impl_->server->Shutdown(deadline);
  impl_->server->Wait();
  return std::chrono::system_clock::now() < deadline;
}

}  // namespace sluice::serving
