#pragma once
// A server that has one region of shared memory, and nothing else.
#include <cstring>

#include "serving/core/buffers.h"
#include "serving/core/server.h"

namespace sluice::fuzz {

class NoServer final : public serving::Server {
 public:
  static constexpr uint64_t kRegion = 64;

  bool live() const override { return true; }
  bool ready() const override { return true; }
  bool model_ready(const std::string&, const std::string&) const override { return true; }
  inference::ServerMetadataResponse metadata() const override { return {}; }
  inference::ModelMetadataResponse model_metadata(const std::string&, const std::string&) const override { return {}; }
  inference::ModelConfig model_config(const std::string&, const std::string&) const override { return {}; }
  inference::ModelStatisticsResponse statistics(const std::string&, const std::string&) const override { return {}; }
  std::string metrics() const override { return ""; }
  inference::RepositoryIndexResponse index(bool) const override { return {}; }
  void load(const std::string&, const serving::LoadOverrides&) override {}
  void unload(const std::string&, bool) override {}
  inference::TraceSettingResponse trace_settings(const inference::TraceSettingRequest&) override { return {}; }
  inference::LogSettingsResponse log_settings(const inference::LogSettingsRequest&) override { return {}; }
  inference::SystemSharedMemoryStatusResponse shared_memory(const std::string&) const override { return {}; }
  void register_shared_memory(const inference::SystemSharedMemoryRegisterRequest&) override {}
  void unregister_shared_memory(const std::string&) override {}
  std::shared_ptr<void> shared_bytes(const serving::SharedRegion& region,
                                     const serving::MemoryPtr& share) const override {
    if (region.offset > kRegion || region.bytes > kRegion - region.offset)
      throw serving::Error(serving::Code::kInvalidArgument, "shared memory: beyond its end");
    std::shared_ptr<void> copy = serving::BufferPool(0).take(region.bytes, share);
    if (region.bytes > 0) std::memset(copy.get(), 0, region.bytes);
    return copy;
  }
  std::shared_ptr<serving::RequestHandle> infer(serving::InferRequest, serving::Respond) override { return nullptr; }
  void refused(const std::string&, const std::string&, serving::Code, serving::Clock::time_point) noexcept override {}
  bool drain(std::chrono::milliseconds) override { return true; }
};

}  // namespace sluice::fuzz
