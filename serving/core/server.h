#pragma once
// The server without its network: what HTTP, gRPC, the C and C++ libraries and Python all speak to.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "inference.pb.h"
#include "serving/core/request.h"

namespace sluice::serving {

// Files and config that a load request brings along instead of those in the repository.
struct LoadOverrides {
  std::string config;                        // ModelConfig as JSON; "" for the repository's
  std::map<std::string, std::string> files;  // "1/model/plan.json": its bytes. With files, `config` must be given
};

// Thread safety: everything may be called from any thread at any time. Whatever cannot be done throws Error.
class Server {
 public:
  virtual ~Server() = default;

  virtual bool live() const = 0;
  virtual bool ready() const = 0;  // all models that it was started with are
  virtual bool model_ready(const std::string& name, const std::string& version) const = 0;

  virtual inference::ServerMetadataResponse metadata() const = 0;
  virtual inference::ModelMetadataResponse model_metadata(const std::string& name,
                                                          const std::string& version) const = 0;
  virtual inference::ModelConfig model_config(const std::string& name, const std::string& version) const = 0;
  // "" name: of all models; "" version: of all versions.
  virtual inference::ModelStatisticsResponse statistics(const std::string& name, const std::string& version) const = 0;
  virtual std::string metrics() const = 0;  // Prometheus' text format

  virtual inference::RepositoryIndexResponse index(bool ready_only) const = 0;
  // Both wait until it is done or has failed. A load of a model that is there takes its place when it is ready.
  virtual void load(const std::string& name, const LoadOverrides& overrides) = 0;
  virtual void unload(const std::string& name, bool dependents) = 0;

  // Changes what `request` names (an empty value clears it), and returns what holds then. "" model: the server's own.
  virtual inference::TraceSettingResponse trace_settings(const inference::TraceSettingRequest& request) = 0;
  virtual inference::LogSettingsResponse log_settings(const inference::LogSettingsRequest& request) = 0;

  virtual inference::SystemSharedMemoryStatusResponse shared_memory(const std::string& region) const = 0;
  virtual void register_shared_memory(const inference::SystemSharedMemoryRegisterRequest& request) = 0;
  virtual void unregister_shared_memory(const std::string& region) = 0;  // "": all
  // A copy of the bytes of a tensor in a registered region, at a multiple of 64 bytes. It counts in `share`.
  virtual std::shared_ptr<void> shared_bytes(const SharedRegion& region, const MemoryPtr& share) const = 0;

  // Starts a request. Never blocks for long, and throws nothing: what is wrong is told by `respond`.
  virtual std::shared_ptr<RequestHandle> infer(InferRequest request, Respond respond) = 0;
  // Counts a request for inference that a front end has refused before it could be given to infer(). The model need not
  // exist.
  virtual void refused(const std::string& model, const std::string& version, Code code,
                       Clock::time_point received) noexcept = 0;

  // Takes no more requests, waits until those under way are answered, or for `timeout`; then cancels the rest. Returns
  // whether all were answered.
  virtual bool drain(std::chrono::milliseconds timeout) = 0;
};

}  // namespace sluice::serving
