#pragma once
// A server without models, for tests of front ends.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "serving/core/buffers.h"
#include "serving/core/server.h"

namespace sluice::serving::test {

using std::chrono::milliseconds;
constexpr std::chrono::seconds kPatience{120};

// A value that a test tells a server, also while others ask it.
template <class T>
class Told {
 public:
  Told& operator=(T value) {
    const std::lock_guard lock(mutex_);
    value_ = std::move(value);
    return *this;
  }
  T read() const {
    const std::lock_guard lock(mutex_);
    return value_;
  }
  void reset() { *this = T(); }

 private:
  mutable std::mutex mutex_;
  T value_{};
};

// Answers requests when the test lets it, and notes what it was asked.
class FakeServer : public Server {
 public:
  struct Asked {
    InferRequest request;
    Respond respond;
    bool cancelled = false;
  };

  bool live() const override { return true; }
  bool ready() const override { return ready_; }
  bool model_ready(const std::string& name, const std::string&) const override {
    if (name != "echo") throw Error(Code::kNotFound, "Request for unknown model: '" + name + "' is not found");
    return true;
  }
  inference::ServerMetadataResponse metadata() const override {
    inference::ServerMetadataResponse response;
    response.set_name("fake");
    return response;
  }
  inference::ModelMetadataResponse model_metadata(const std::string& name, const std::string&) const override {
    model_ready(name, "");
    return model;
  }
  inference::ModelConfig model_config(const std::string&, const std::string&) const override {
    if (const auto told = config.read()) return *told;
    if (const auto told = fail.read()) throw Error(*told);
    throw std::runtime_error("0x7fff: a secret");
  }
  inference::ModelStatisticsResponse statistics(const std::string&, const std::string&) const override { return {}; }
  std::string metrics() const override { return ""; }
  inference::RepositoryIndexResponse index(bool) const override { return {}; }
  void load(const std::string& name, const LoadOverrides& overrides) override {
    const std::lock_guard lock(mutex);
    loaded[name] = overrides;
  }
  void unload(const std::string& name, bool dependents) override {
    const std::lock_guard lock(mutex);
    unloaded.emplace_back(name, dependents);
  }
  inference::TraceSettingResponse trace_settings(const inference::TraceSettingRequest&) override { return {}; }
  inference::LogSettingsResponse log_settings(const inference::LogSettingsRequest&) override { return {}; }
  inference::SystemSharedMemoryStatusResponse shared_memory(const std::string&) const override { return {}; }
  void register_shared_memory(const inference::SystemSharedMemoryRegisterRequest&) override {}
  void unregister_shared_memory(const std::string&) override {}
  std::shared_ptr<void> shared_bytes(const SharedRegion& region, const MemoryPtr& share) const override {
    if (region_asked) region_asked();
    if (region.region != "known") throw Error(Code::kNotFound, "shared memory: there is no region");
    return buffers.take(region.bytes, share);
  }
  bool drain(milliseconds) override { return true; }

  std::shared_ptr<RequestHandle> infer(InferRequest request, Respond respond) override {
    if (const auto answer = at_once.read()) {
      respond(answer(request), true);
      return nullptr;
    }
    auto asked = std::make_shared<Asked>();
    asked->request = std::move(request);
    asked->respond = std::move(respond);
    {
      const std::lock_guard lock(mutex);
      waiting.push_back(asked);
    }
    changed.notify_all();
    return std::make_shared<Handle>(*this, asked);
  }

  void refused(const std::string& model, const std::string&, Code code, Clock::time_point) noexcept override {
    const std::lock_guard lock(mutex);
    refusals.emplace_back(model, code);
  }
  std::vector<std::pair<std::string, Code>> all_refused() {
    const std::lock_guard lock(mutex);
    return refusals;
  }

  std::map<std::string, LoadOverrides> all_loaded() {
    const std::lock_guard lock(mutex);
    return loaded;
  }
  // Waits until so many requests are there that have not been taken, and takes them.
  std::vector<std::shared_ptr<Asked>> take(size_t count) {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, kPatience, [&] { return waiting.size() >= count; }));
    std::vector<std::shared_ptr<Asked>> all;
    all.swap(waiting);
    return all;
  }
  size_t number_waiting() {
    const std::lock_guard lock(mutex);
    return waiting.size();
  }
  void wait_cancelled(const Asked& asked) {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, kPatience, [&] { return asked.cancelled; }));
  }

  std::atomic<bool> ready_{true};
  inference::ModelMetadataResponse model;  // of "echo"
  Told<std::optional<inference::ModelConfig>> config;
  Told<std::optional<Error>> fail;
  Told<std::function<InferResponse(const InferRequest&)>> at_once;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::shared_ptr<Asked>> waiting;
  std::function<void()> region_asked;  // called in between, while a request is read
  std::map<std::string, LoadOverrides> loaded;
  std::vector<std::pair<std::string, bool>> unloaded;
  std::vector<std::pair<std::string, Code>> refusals;
  mutable BufferPool buffers{1 << 20};

 private:
  class Handle final : public RequestHandle {
   public:
    Handle(FakeServer& server, std::shared_ptr<Asked> asked) : server_(server), asked_(std::move(asked)) {}
    void cancel() override {
      Respond respond;
      {
        const std::lock_guard lock(server_.mutex);
        asked_->cancelled = true;
        respond = std::move(asked_->respond);
        asked_->respond = nullptr;
      }
      server_.changed.notify_all();
      if (!respond) return;
      InferResponse response;
      response.error = Error(Code::kCancelled, "infer: cancelled");
      respond(std::move(response), true);
    }

   private:
    FakeServer& server_;
    std::shared_ptr<Asked> asked_;
  };
};

// Answers each request in parts, as fast as they are taken from it, until it is cancelled; or, in the end, by itself.
class FloodServer final : public FakeServer {
 public:
  static constexpr int kMost = 20000;
  explicit FloodServer(InferResponse part) : part_(std::move(part)) {}
  ~FloodServer() override { wait(); }
  void wait() {
    std::unique_lock lock(starting_);  // the flood may be over before its start has returned
    std::thread flood = std::move(thread_);
    lock.unlock();
    if (flood.joinable()) flood.join();
  }
  std::shared_ptr<RequestHandle> infer(InferRequest request, Respond respond) override {
    auto flow = std::make_shared<Flow>();
    const std::lock_guard lock(starting_);
    thread_ = std::thread([this, flow, id = request.id, memory = request.memory, respond = std::move(respond)] {
      InferResponse part;
      try {
        for (parts = 0; parts < kMost && !flow->cancelled; ++parts) {
          part = part_;
          part.id = id;
          for (Tensor& output : part.outputs) output.data = counted(std::move(output.data), Held(memory, output.bytes));
          respond(std::move(part), false);
        }
      } catch (const Error&) {  // there is no memory left for the next
        flow->cancelled = true;
      }
      was_cancelled = flow->cancelled.load();
      part = part_;
      part.id = id;
      if (flow->cancelled) part.error = Error(Code::kCancelled, "infer: cancelled");
      respond(part, true);
    });
    return flow;
  }
  std::atomic<int> parts{0};
  std::atomic<bool> was_cancelled{false};

 private:
  struct Flow final : RequestHandle {
    void cancel() override { cancelled = true; }
    std::atomic<bool> cancelled{false};
  };
  const InferResponse part_;
  std::mutex starting_;
  std::thread thread_;
};

// The inputs as outputs.
inline InferResponse echo(const InferRequest& request) {
  InferResponse response;
  response.model = request.model;
  response.version = "1";
  response.id = request.id;
  response.parameters = request.parameters;
  response.outputs = request.inputs;
  return response;
}
// Answers unless it has been cancelled.
inline void answer(FakeServer& server, FakeServer::Asked& asked) {
  Respond respond;
  {
    const std::lock_guard lock(server.mutex);
    respond = std::move(asked.respond);
    asked.respond = nullptr;
  }
  if (respond) respond(echo(asked.request), true);
}

}  // namespace sluice::serving::test
