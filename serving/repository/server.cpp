// The server: requests go straight to executors, by the table; what changes models goes to the actors.
#include "serving/repository/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>
#include <thread>

#include "serving/core/log.h"
#include "serving/core/settings.h"
#include "serving/core/shared_memory.h"
#include "serving/execution/metrics.h"
#include "serving/repository/names.h"
#include "serving/repository/tree.h"
#include "sluice/version.h"

namespace sluice::serving {

namespace {

constexpr size_t kKeptBuffers = size_t{16} << 20;

class NoRequest final : public RequestHandle {
 public:
  void cancel() override {}
};

// Counts who is on the way into an executor, so that drain() knows when nobody is any more.
class Door {
 public:
  class Pass {
   public:
    explicit Pass(Door& door) : door_(door) { ++door_.inside_; }
    ~Pass() {
      if (--door_.inside_ == 0 && door_.closed_) door_.inside_.notify_all();
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    Door& door_;
  };
  bool closed() const { return closed_; }
  void close() {
    closed_ = true;
    for (int now = inside_; now > 0; now = inside_) inside_.wait(now);
  }

 private:
  std::atomic<int> inside_{0};
  std::atomic<bool> closed_{false};
};

void add_tensor(inference::ModelMetadataResponse::TensorMetadata& to, const std::string& name, inference::DataType type,
                const google::protobuf::RepeatedField<int64_t>& dims, bool batched) {
  to.set_name(name);
  to.set_datatype(std::string(datatype_name(type)));
  if (batched) to.add_shape(-1);
  to.mutable_shape()->MergeFrom(dims);
}

// Outputs that the client wants in its shared memory go there before it is told.
Respond into_shared_memory(const InferRequest& request, std::shared_ptr<const SharedMemory> memory, Respond respond) {
  std::map<std::string, SharedRegion> regions;
  for (const RequestedOutput& output : request.outputs)
    if (output.shared) regions.emplace(output.name, *output.shared);
  return [regions = std::move(regions), memory = std::move(memory), respond = std::move(respond)](
             InferResponse response, bool last) {
    try {
      for (Tensor& output : response.outputs) {
        const auto region = regions.find(output.name);
        if (region == regions.end()) continue;
        memory->write(region->second, output.data.get(), output.bytes);
        output.data = nullptr;
        output.bytes = 0;
      }
    } catch (const Error& error) {
      response.outputs.clear();
      response.error = error;
    }
    respond(std::move(response), last);
  };
}

class LocalServer final : public Server {
 public:
  LocalServer(ServerOptions options, Executors executors)
      : tracing_(options.trace, options.request_log),
        shared_(std::make_shared<SharedMemory>(options.shared_memory, options.shared_memory_prefix)),
        context_(std::make_shared<Context>(std::move(options), std::move(executors), *home_)) {
    const Started started = [this](const std::set<std::string>& names) {
      const std::lock_guard lock(mutex_);
      required_ = names;
      started_ = true;
    };
    ActorHome::on_own_thread([&] { tree_ = spawn_repository(context_, started); });
  }
  ~LocalServer() override;

  bool live() const override { return !door_.closed(); }
  bool ready() const override;
  bool model_ready(const std::string& name, const std::string& version) const override;
  inference::ServerMetadataResponse metadata() const override;
  inference::ModelMetadataResponse model_metadata(const std::string& name, const std::string& version) const override;
  inference::ModelConfig model_config(const std::string& name, const std::string& version) const override {
    return context_->table.find(name, version)->config;
  }
  inference::ModelStatisticsResponse statistics(const std::string& name, const std::string& version) const override;
  std::string metrics() const override;
  inference::RepositoryIndexResponse index(bool ready_only) const override;
  void load(const std::string& name, const LoadOverrides& overrides) override;
  void unload(const std::string& name, bool dependents) override;
  inference::TraceSettingResponse trace_settings(const inference::TraceSettingRequest& request) override;
  inference::LogSettingsResponse log_settings(const inference::LogSettingsRequest& request) override {
    return apply_log_settings(request);
  }
  inference::SystemSharedMemoryStatusResponse shared_memory(const std::string& region) const override {
    return shared_->status(region);
  }
  void register_shared_memory(const inference::SystemSharedMemoryRegisterRequest& request) override {
    shared_->add(request);
  }
  void unregister_shared_memory(const std::string& region) override { shared_->remove(region); }
  std::shared_ptr<void> shared_bytes(const SharedRegion& region, const MemoryPtr& share) const override {
    return shared_->read(region, buffers_, share);
  }
  std::shared_ptr<RequestHandle> infer(InferRequest request, Respond respond) override;
  void refused(const std::string& model, const std::string& version, Code code,
               Clock::time_point received) noexcept override {
    try {
      context_->table.find(model, version)->executor->refused(code, received);
    } catch (const std::exception&) {  // there is no such model, so nothing counts its requests
    }
  }
  bool drain(std::chrono::milliseconds timeout) override;

 private:
  void check_control(const std::string& what) const;
  Tracing tracing_;
  const std::shared_ptr<SharedMemory> shared_;
  mutable BufferPool buffers_{kKeptBuffers};  // of inputs in shared memory
  std::unique_ptr<ActorHome> home_ = std::make_unique<ActorHome>();
  const ContextPtr context_;
  caf::actor tree_;
  Door door_;
  mutable std::mutex mutex_;
  std::set<std::string> required_;  // loaded at the start, and not unloaded since
  bool started_ = false;
};

LocalServer::~LocalServer() {
  drain(std::chrono::milliseconds(0));
  context_->stopping = true;
  std::promise<void> ended;
  tree_->attach_functor([&] { ended.set_value(); });
  caf::anon_send(tree_, stop_atom::value);
  ended.get_future().wait();
  tree_ = nullptr;
  context_->table.clear();
  home_ = nullptr;
}

bool LocalServer::ready() const {
  if (door_.closed()) return false;
  std::set<std::string> required;
  {
    const std::lock_guard lock(mutex_);
    if (!started_) return false;
    required = required_;
  }
  if (!context_->options.strict_readiness) return true;
  return std::all_of(required.begin(), required.end(), [this](const auto& name) {
    try {
      return model_ready(name, "");
    } catch (const Error&) {  // its folder has been removed since, or never was
      return context_->options.control == ModelControl::kPoll;
    }
  });
}

bool LocalServer::model_ready(const std::string& name, const std::string& version) const {
  try {
    return context_->table.find(name, version)->executor->ready();
  } catch (const Error& error) {
    if (error.code() == Code::kNotFound) throw;
    return false;
  }
}

inference::ServerMetadataResponse LocalServer::metadata() const {
  inference::ServerMetadataResponse response;
  response.set_name(context_->options.name);
  response.set_version(SLUICE_VERSION);
  for (const char* extension :
       {"classification", "sequence", "model_repository", "model_repository(unload_dependents)", "schedule_policy",
        "model_configuration", "binary_tensor_data", "parameters", "statistics", "logging"})
    response.add_extensions(extension);
  if (!context_->options.trace.file.empty()) response.add_extensions("trace");
  if (context_->options.shared_memory) response.add_extensions("system_shared_memory");
  return response;
}

inference::ModelMetadataResponse LocalServer::model_metadata(const std::string& name,
                                                             const std::string& version) const {
  const ServedPtr served = context_->table.find(name, version);
  const inference::ModelConfig& config = served->config;
  inference::ModelMetadataResponse response;
  response.set_name(name);
  response.set_platform(config.platform());
  if (version.empty()) {
    const std::vector<ServedPtr> all = context_->table.served(name, "");
    for (auto it = all.rbegin(); it != all.rend(); ++it) response.add_versions((*it)->version);
  } else {
    response.add_versions(served->version);
  }
  const bool batched = config.max_batch_size() > 0;
  for (const auto& input : config.input())
    add_tensor(*response.add_inputs(), input.name(), input.data_type(), input.dims(), batched);
  for (const auto& output : config.output())
    add_tensor(*response.add_outputs(), output.name(), output.data_type(), output.dims(), batched);
  return response;
}

inference::ModelStatisticsResponse LocalServer::statistics(const std::string& name, const std::string& version) const {
  inference::ModelStatisticsResponse response;
  for (const ServedPtr& served : context_->table.served(name, version))
    *response.add_model_stats() = served->executor->statistics();
  return response;
}

std::string LocalServer::metrics() const {
  std::vector<ModelMetrics> models;
  for (const ServedPtr& served : context_->table.served("", ""))
    models.push_back({served->executor->statistics(), served->executor->pending(), served->executor->failures(),
                      served->executor->latencies()});
  return metrics_text(models, context_->options.metrics);
}

inference::RepositoryIndexResponse LocalServer::index(bool ready_only) const {
  inference::RepositoryIndexResponse response;
  auto models = context_->table.read();
  if (!ready_only && context_->options.control == ModelControl::kExplicit)
    for (const std::string& name : context_->catalog.names()) {
      ModelView& view = models[name];
      if (view.versions.empty() && view.state.empty()) view.state = "UNAVAILABLE", view.reason = "not loaded";
    }
  const auto add = [&](const std::string& name, const std::string& version, const VersionState& state) {
    if (ready_only && state.state != "READY") return;
    auto& row = *response.add_models();
    row.set_name(name);
    row.set_version(version);
    row.set_state(state.state);
    row.set_reason(state.reason);
  };
  for (const auto& [name, view] : models) {
    if (view.versions.empty()) add(name, "", {view.state, view.reason});
    for (const auto& [number, state] : view.versions) {
      const auto served = std::find_if(view.served.begin(), view.served.end(),
                                       [&](const ServedPtr& version) { return version->number == number; });
      const bool down = served != view.served.end() && !(*served)->executor->ready();
      add(name, std::to_string(number),
          down ? VersionState{"UNAVAILABLE", "its instances are being restarted"} : state);
    }
  }
  return response;
}

void LocalServer::check_control(const std::string& what) const {
  if (context_->options.control == ModelControl::kExplicit) return;
  throw Error(Code::kForbidden,
              fmt::format("{}: model control is '{}'; clients load and unload models of a server with 'explicit'", what,
                          context_->options.control == ModelControl::kPoll ? "poll" : "none"));
}

void LocalServer::load(const std::string& name, const LoadOverrides& overrides) {
  check_control("load");
  if (door_.closed()) throw Error(Code::kUnavailable, "load: the server is shutting down");
  check_model_name("load", name);
  for (const auto& [file, content] : overrides.files) check_file_name("load", file);
  if (!overrides.files.empty() && overrides.config.empty())
    throw Error(Code::kInvalidArgument, "load: model '" + name + "': files without a config; give both");
  const auto operation = std::make_shared<Operation>();
  operation->model = name;
  operation->force = true;
  operation->read = [context = context_, name, overrides] {
    const auto source = [&]() -> Source {
      if (overrides.files.empty()) return context->catalog.find(name);
      Source own{name, Folder::make_private()};
      try {
        for (const auto& [file, content] : overrides.files) own.folder.write(file, content);
      } catch (const Error& error) {
        throw Error(error.code(), fmt::format("load: files of model '{}': {}", name, error.what()));
      }
      return own;
    };
    Source from = source();
    from.config = overrides.config;
    return read_draft(std::move(from));
  };
  std::promise<std::optional<Error>> result;
  operation->done = [&](const std::optional<Error>& error) { result.set_value(error); };
  caf::anon_send(tree_, operation);
  if (const auto error = result.get_future().get()) throw Error(*error);
}

void LocalServer::unload(const std::string& name, bool dependents) {
  check_control("unload");
  check_model_name("unload", name);
  std::promise<std::optional<Error>> result;
  const auto request = std::make_shared<Unload>();
  *request = {name, dependents, [&](const std::optional<Error>& error) { result.set_value(error); }};
  caf::anon_send(tree_, request);
  if (const auto error = result.get_future().get()) throw Error(*error);
  const std::lock_guard lock(mutex_);
  required_.erase(name);
}

inference::TraceSettingResponse LocalServer::trace_settings(const inference::TraceSettingRequest& request) {
  if (!request.model_name().empty()) static_cast<void>(context_->table.served(request.model_name(), ""));
  return tracing_.settings(request);
}

std::shared_ptr<RequestHandle> LocalServer::infer(InferRequest request, Respond respond) {
  const Door::Pass pass(door_);
  ServedPtr served;
  try {
    if (door_.closed()) throw Error(Code::kUnavailable, "infer: the server is shutting down");
    served = context_->table.find(request.model, request.version);
    request.version = served->version;
    if (std::any_of(request.outputs.begin(), request.outputs.end(),
                    [](const RequestedOutput& output) { return output.shared.has_value(); }))
      respond = into_shared_memory(request, shared_, std::move(respond));
    tracing_.begin(request, respond);
  } catch (const Error& error) {
    InferResponse response;
    response.model = request.model;
    response.version = request.version;
    response.id = request.id;
    response.error = error;
    respond(std::move(response), true);
    return std::make_shared<NoRequest>();
  }
  return served->executor->infer(std::move(request), std::move(respond));
}

bool LocalServer::drain(std::chrono::milliseconds timeout) {
  const auto until = Clock::now() + std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(24 * 365));
  door_.close();
  std::set<std::shared_ptr<Executor>> executors = context_->leavers.read();
  for (const ServedPtr& served : context_->table.served("", "")) executors.insert(served->executor);
  bool all = true;
  for (const std::shared_ptr<Executor>& executor : executors) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    all = executor->drain(std::max(left, std::chrono::milliseconds(0))) && all;
  }
  tracing_.flush();
  return all;
}

}  // namespace

std::unique_ptr<Server> make_server(ServerOptions options, Executors executors) {
  return std::make_unique<LocalServer>(std::move(options), std::move(executors));
}

std::unique_ptr<Server> make_server(ServerOptions options) { return make_server(std::move(options), Executors{}); }

}  // namespace sluice::serving
