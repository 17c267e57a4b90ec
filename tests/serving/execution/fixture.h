#pragma once
// Executors of small bundles, compiled for the test.
#include <gtest/gtest.h>
#include <unistd.h>

#include <caf/all.hpp>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>

#include "google/protobuf/text_format.h"
#include "serving/core/executor.h"
#include "sluice/compile.h"
#include "sluice/session.h"

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

// y = x W for x of this many rows of four, W of (4, 4).
inline std::string product(int64_t rows) {
  const std::string type = "float32(" + std::to_string(rows) + ", 4)";
  return "graph \"product\" {\n  %0 = input \"x\" : " + type +
         "\n  %1 = variable \"w\" : float32(4, 4)\n  %2 = matmul(%0, %1) : " + type + "\n  output \"y\" = %2\n}\n";
}

// A door (door_ops.cpp) for this many rows of one.
inline std::string door(int64_t rows) {
  const std::string type = "float32(" + std::to_string(rows) + ", 1)";
  return "graph \"door\" {\n  %0 = input \"x\" : " + type + "\n  %1 = door(%0) : " + type +
         "\n  output \"y\" = %1\n}\n";
}

inline std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
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
      state->by = std::this_thread::get_id();
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
  std::thread::id answered_by() const {
    const std::lock_guard lock(state_->mutex);
    return state_->by;
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
    std::thread::id by;
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
  // A family of plans for the sizes of one dim, "batch": `columns` of x and y behind it.
  std::string family(const std::string& name, const std::function<std::string(int64_t)>& graph,
                     const std::vector<int64_t>& sizes, int64_t columns, const std::vector<NamedTensor>& weights = {}) {
    const fs::path path = dir_ / name;
    if (fs::exists(path)) return path;
    std::string members;
    for (size_t m = 0; m < sizes.size(); ++m) {
      const fs::path member = bundle(name + "_" + std::to_string(m), graph(sizes[m]), weights);
      const fs::path to = path / "members" / std::to_string(m);
      fs::create_directories(to);
      for (const char* file : {"plan.json", "graph.txt"}) fs::copy(member / file, to / file);
      if (m == 0) fs::copy(member / "weights.safetensors", path / "weights.safetensors");
      members += (m > 0 ? ", [" : "[") + std::to_string(sizes[m]) + "]";
    }
    const std::string port = R"("dtype": "float32", "shape": ["batch", )" + std::to_string(columns) + "]}]";
    std::ofstream(path / "meta.json") << "{}";
    std::ofstream(path / "family.json")
        << R"({"schema_version": 1, "name": "f", "dims": [{"name": "batch", "min": 1, "max": )" << sizes.back()
        << R"(, "fit": "pad"}], "inputs": [{"name": "x", )" << port << R"(, "outputs": [{"name": "y", )" << port
        << R"(, "members": [)" << members << "]}";
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

// Closed after the engine has ended, and with it the kernels at the doors.
struct Pipes {
  Pipes() {
    EXPECT_EQ(pipe(in_), 0);
    EXPECT_EQ(pipe(out_), 0);
  }
  ~Pipes() {
    for (const int file : {in_[0], in_[1], out_[0], out_[1]}) close(file);
  }
  int in_[2] = {-1, -1}, out_[2] = {-1, -1};
};

// With doors: kernels that say when they are inside, and wait to be let out.
class DoorTest : protected Pipes, public ExecutionTest {
 protected:
  explicit DoorTest(int cores = 1) : ExecutionTest(cores) {
    setenv("SLUICE_TEST_DOOR_IN", std::to_string(in_[1]).c_str(), 1);
    setenv("SLUICE_TEST_DOOR_OUT", std::to_string(out_[0]).c_str(), 1);
    engine_.load_extension(DOOR_OPS);
  }
  // Waits until a kernel is inside; how many are then.
  int entered() {
    char count = 0;
    EXPECT_EQ(read(in_[0], &count, 1), 1);
    return count;
  }
  void open_door(int times = 1) {
    for (int i = 0; i < times; ++i) EXPECT_EQ(write(out_[1], "", 1), 1);
  }
  static InferRequest at_door(float x) { return request(floats("x", {1, 1}, {x})); }
};

}  // namespace sluice::serving::test
