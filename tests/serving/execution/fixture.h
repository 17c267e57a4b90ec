#pragma once
// Executors of small bundles, compiled for the test.
#include <gtest/gtest.h>
#include <unistd.h>

#include <caf/all.hpp>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "google/protobuf/text_format.h"
#include "serving/core/executor.h"
#include "sluice/compile.h"

namespace sluice::serving::test {

namespace fs = std::filesystem;
using api::NamedTensor;
using Floats = std::vector<float>;

// "graph" text of y = 2 x, of this many rows of three.
inline std::string doubling(int64_t rows) {
  const std::string type = "float32(" + std::to_string(rows) + ", 3)";
  return "graph \"doubling\" {\n  %0 = input \"x\" : " + type + "\n  %1 = add(%0, %0) : " + type +
         "\n  output \"y\" = %1\n}\n";
}

inline std::shared_ptr<void> memory_of(const void* data, size_t bytes) {
  if (bytes == 0) return nullptr;
  std::shared_ptr<void> memory(std::aligned_alloc(64, (bytes + 63) / 64 * 64), std::free);
  std::memcpy(memory.get(), data, bytes);
  return memory;
}

template <class T>
Tensor tensor(const std::string& name, DataType type, std::vector<int64_t> shape, const std::vector<T>& values) {
  const size_t bytes = values.size() * sizeof(T);
  return {name, type, std::move(shape), memory_of(values.data(), bytes), bytes};
}
inline Tensor floats(const std::string& name, std::vector<int64_t> shape, const Floats& values) {
  return tensor(name, DataType::TYPE_FP32, std::move(shape), values);
}
template <class T = float>
std::vector<T> values_of(const Tensor& tensor) {
  std::vector<T> values(tensor.bytes / sizeof(T));
  if (tensor.bytes > 0) std::memcpy(values.data(), tensor.data.get(), tensor.bytes);
  return values;
}

// A request under way; asked for its answer, waits for it.
class Call {
 public:
  Call(Executor& executor, InferRequest request) : state_(std::make_shared<State>()) {
    state_->handle = executor.infer(std::move(request), [state = state_](InferResponse response, bool last) {
      const std::lock_guard lock(state->mutex);
      EXPECT_TRUE(last);
      EXPECT_EQ(state->answers++, 0);
      state->response = std::move(response);
      state->changed.notify_all();
    });
  }
  const InferResponse& get() const {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->answers > 0; });
    return state_->response;
  }
  bool answered() const {
    const std::lock_guard lock(state_->mutex);
    return state_->answers > 0;
  }
  void cancel() const { state_->handle->cancel(); }
  std::string error() const { return get().error ? get().error->what() : ""; }
  std::optional<Code> code() const { return get().error ? std::optional(get().error->code()) : std::nullopt; }
  Floats floats(size_t output = 0) const {
    EXPECT_EQ(error(), "");
    return get().error ? Floats() : values_of(get().outputs.at(output));
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    InferResponse response;
    int answers = 0;
    std::shared_ptr<RequestHandle> handle;
  };
  std::shared_ptr<State> state_;
};

class ExecutionTest : public ::testing::Test {
 protected:
  explicit ExecutionTest(int cores = 1) : engine_({.cores = cores}) {
    static std::atomic<int> count{0};
    dir_ = fs::path(::testing::TempDir()) /
           ("sluice_execution_" + std::to_string(getpid()) + "_" + std::to_string(count++));
    fs::create_directories(dir_);
  }
  ~ExecutionTest() override { fs::remove_all(dir_); }

  std::string bundle(const std::string& name, const std::string& graph, const std::vector<NamedTensor>& weights = {}) {
    const std::string path = dir_ / name;
    if (!fs::exists(path)) api::compile(engine_, graph, weights, path);
    return path;
  }
  static inference::ModelConfig config(const std::string& text) {
    inference::ModelConfig config;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
    if (config.name().empty()) config.set_name("m");
    return config;
  }
  std::shared_ptr<Executor> make(const std::string& bundle, const std::string& text) {
    ExecutorSpec spec;
    spec.config = config(text);
    spec.version = "1";
    spec.folder = dir_;
    spec.bundle = bundle;
    return make_executor(machine(), std::move(spec));
  }
  Machine machine() { return {engine_, actors_, options_}; }
  std::string refusal(const std::string& bundle, const std::string& text) {
    try {
      make(bundle, text);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  static InferRequest request(Tensor input) {
    InferRequest request;
    request.model = "m";
    request.inputs.push_back(std::move(input));
    return request;
  }

  fs::path dir_;
  ServerOptions options_;
  api::Engine engine_;
  caf::actor_system_config actors_config_;
  caf::actor_system actors_{actors_config_};
};

}  // namespace sluice::serving::test
