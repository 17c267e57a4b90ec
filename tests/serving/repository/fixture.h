#pragma once
// Servers of repositories of small bundles, compiled for the test.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "serving/core/log.h"
#include "serving/repository/server.h"
#include "sluice/compile.h"
#include "support/eventually.h"

namespace sluice::serving::test {

namespace fs = std::filesystem;
using Floats = std::vector<float>;

inline std::shared_ptr<void> memory_of(const void* data, size_t bytes) {
  if (bytes == 0) return nullptr;
  std::shared_ptr<void> memory(std::aligned_alloc(64, (bytes + 63) / 64 * 64), std::free);
  std::memcpy(memory.get(), data, bytes);
  return memory;
}

// `f` until it is true. The server's state changes by itself, so there is something to wait for.
inline void eventually(const std::function<bool()>& f, const std::string& what) {
  ASSERT_TRUE(sluice::test::eventually(f)) << what;
}

// The text of what `f` throws, as "<text>"; "" where it throws nothing.
template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline Tensor floats(const std::string& name, std::vector<int64_t> shape, const Floats& x) {
  const size_t bytes = x.size() * sizeof(float);
  return {name, DataType::TYPE_FP32, std::move(shape), memory_of(x.data(), bytes), bytes};
}

struct Answer {
  Floats values;
  std::string error, version, output;
};

// Starts a request; answers when asked.
inline std::future<Answer> ask(Server& server, InferRequest request) {
  const auto promise = std::make_shared<std::promise<Answer>>();
  server.infer(std::move(request), [promise](InferResponse response, bool) {
    Answer answer;
    answer.version = response.version;
    if (response.error) {
      answer.error = response.error->what();
    } else {
      const Tensor& y = response.outputs.at(0);
      answer.output = y.name;
      answer.values.resize(y.bytes / sizeof(float));
      if (y.bytes > 0) std::memcpy(answer.values.data(), y.data.get(), y.bytes);
    }
    promise->set_value(std::move(answer));
  });
  return promise->get_future();
}
inline std::future<Answer> ask(Server& server, const std::string& model, const Floats& x,
                               const std::string& version = "", const std::string& input = "INPUT_0") {
  InferRequest request;
  request.model = model;
  request.version = version;
  request.inputs.push_back(floats(input, {1, static_cast<int64_t>(x.size())}, x));
  return ask(server, std::move(request));
}

class RepositoryTest : public ::testing::Test {
 protected:
  RepositoryTest() {
    static std::atomic<int> count{0};
    dir_ = fs::path(::testing::TempDir()) /
           ("sluice_repository_" + std::to_string(getpid()) + "_" + std::to_string(count++));
    repository_ = dir_ / "models";
    fs::create_directories(repository_);
    options_.repositories = {repository_};
    options_.control = ModelControl::kExplicit;
    options_.cores = 1;
  }
  ~RepositoryTest() override {
    server_ = nullptr;
    std::error_code none;
    fs::remove_all(dir_, none);
  }

  static api::Engine& engine() {
    static api::Engine engine({.cores = 1});
    return engine;
  }
  // y = w x for x of one row of `columns`.
  static void compile(const fs::path& to, float w, int columns = 3) {
    const std::string type = "float32(1, " + std::to_string(columns) + ")";
    const std::string graph = "graph \"scale\" {\n  %0 = input \"x\" : " + type +
                              "\n  %1 = variable \"w\" : float32(1, 1)\n  %2 = mul(%0, %1) : " + type +
                              "\n  output \"y\" = %2\n}\n";
    fs::create_directories(to.parent_path());
    api::compile(engine(), graph, {{"w", api::Tensor::from<float>({w}, {1, 1})}}, to);
  }
  // A version with the bundle of y = w x, put there at once, as whoever publishes a version does.
  void put(const std::string& model, int version, float w, int columns = 3) {
    const std::string name = model + "/" + std::to_string(version);
    const fs::path made = dir_ / "made" / name;
    compile(made / "model", w, columns);
    fs::create_directories(repository_ / model);
    fs::remove_all(repository_ / name);
    fs::rename(made, repository_ / name);
  }
  void write(const fs::path& path, const std::string& text) const {
    const fs::path whole = repository_ / path;
    fs::create_directories(whole.parent_path());
    const fs::path part = dir_ / "part";
    std::ofstream(part, std::ios::binary) << text;
    fs::rename(part, whole);
  }
  // A version that cannot be loaded.
  void break_version(const std::string& model, int version) {
    write(model + "/" + std::to_string(version) + "/model/plan.json", "{\"this is no plan\": ");
  }

  Server& serve() {
    server_ = make_server(options_, executors_);
    return *server_;
  }
  Server& serve_all() {
    options_.startup_models = {"*"};
    serve();
    started();
    return *server_;
  }
  void started() {
    eventually([&] { return server_->ready(); }, "the server starts: " + index());
  }
  std::string refused_load(const std::string& model, const LoadOverrides& overrides = {}) {
    return refusal([&] { server_->load(model, overrides); });
  }
  // "m 1 READY; m 2 UNAVAILABLE: why".
  std::string index(bool ready_only = false) const {
    std::string text;
    const inference::RepositoryIndexResponse response = server_->index(ready_only);
    for (const auto& row : response.models())
      text += (text.empty() ? "" : "; ") + row.name() + (row.version().empty() ? "" : " " + row.version()) + " " +
              row.state() + (row.reason().empty() ? "" : ": " + row.reason());
    return text;
  }
  Floats values(const std::string& model, const std::string& version = "", const Floats& x = {1, 2, 3}) {
    const Answer answer = ask(*server_, model, x, version).get();
    EXPECT_EQ(answer.error, "");
    return answer.values;
  }
  float factor(const std::string& model, const std::string& version = "") {
    const Floats y = values(model, version);
    return y.empty() ? 0 : y[0];
  }
  std::string error(const std::string& model, const std::string& version = "") {
    return ask(*server_, model, {1, 2, 3}, version).get().error;
  }

  fs::path dir_, repository_;
  ServerOptions options_;
  Executors executors_;
  std::unique_ptr<Server> server_;
};

}  // namespace sluice::serving::test
